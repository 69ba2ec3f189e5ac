// The file with the load of the last hour, in this user's folder of the archive, so that the plots
// of the page survive a restart of the server.
//
// The file is optional: without an archive that this user can write, the plots begin anew with each
// start of the server.
#pragma once

#include <string>

#include "harbour/location.h"

namespace berth::serve {

// "" if there is no file, or it cannot be read.
std::string read_load_file(const HarbourLocation& where);
// Replaces the file. Creates this user's folder if it is missing. A failure is ignored: the next
// call tries again.
void write_load_file(const HarbourLocation& where, const std::string& text);

}  // namespace berth::serve
