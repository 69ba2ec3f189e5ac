// Looks at everything that `berth doctor` judges: driver, harbour, surroundings.
#pragma once

#include <functional>

#include "doctor/checks.h"

namespace berth {

// Goes on where a part fails, makes and changes nothing, and takes a limited time: that of the
// driver (see open_driver(), which gets `on_slow`) and 2 s for a lock that somebody keeps.
Findings run_checks(const std::function<void()>& on_slow);

}  // namespace berth
