// Turns errno into an Error for the files of the harbour.
#pragma once

#include <string_view>

#include "base/result.h"

namespace berth {

// The error (ErrorKind::io) for errno, with a remedy: "cannot make a bell in '/tmp/berth': No space
// left on device; free some space". `directory` is open; the kernel reports its path.
tl::unexpected<Error> file_error(std::string_view what, int directory);
tl::unexpected<Error> file_error(std::string_view what, std::string_view path);

// Can the owner of a file cause this errno when another process opens that file (by removing the
// permission, replacing the file by one of another type, or F_SETLEASE)? Then only this file cannot
// be used. Any other errno means that the state of the harbour cannot be determined.
bool is_caused_by_owner(int reason);

}  // namespace berth
