// Collects the facts about driver, harbour and host, and runs the checks of `berth doctor`.
#pragma once

#include <functional>

#include "doctor/checks.h"

namespace berth {

// Continues if a part fails. Makes and changes nothing. Takes a limited time: the driver's time
// limit (open_driver() gets `on_slow`), 2 s for the harbour's lock if another process holds it, and
// 3 s to see whether a ticket claims its GPUs.
Findings run_checks(const std::function<void()>& on_slow);

}  // namespace berth
