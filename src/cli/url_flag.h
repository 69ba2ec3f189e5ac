// --url: the harbour's server, for this command and what it starts.
#pragma once

#include "cli/flags.h"

namespace berth {

void add_url_flag(Flags& command);

}  // namespace berth
