// Runs the view: keys, signals and pictures in, frames out.
#pragma once

#include "base/result.h"

namespace berth::top {

// Until the user leaves: 0. A signal that ends it (SIGTERM, SIGHUP, SIGINT, SIGQUIT) does so once
// the terminal is as it was. Errors are ErrorKind::usage: the terminal, or a setting.
Result<int> run_top();

}  // namespace berth::top
