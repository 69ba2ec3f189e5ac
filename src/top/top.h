// The main loop of `berth top`.
#pragma once

#include "base/result.h"

namespace berth::top {

// Runs until the user quits, and returns 0. On SIGTERM, SIGHUP, SIGINT or SIGQUIT it restores the
// terminal and then lets the signal end the process. ErrorKind::usage: the terminal or a setting
// cannot be used.
Result<int> run_top();

}  // namespace berth::top
