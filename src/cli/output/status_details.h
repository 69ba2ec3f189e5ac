// The table of `berth status -v`: every value of each GPU, with its leases and processes.
#pragma once

#include <string>

#include "base/terminal.h"
#include "status/status.h"

namespace berth {

// Whole lines, escaped and shortened for `terminal`.
std::string status_details(const Status& status, const Terminal& terminal, uid_t viewer);

}  // namespace berth
