// Which driver berth talks to, decided by the environment: the real one, or the simulated one.
#pragma once

#include <functional>
#include <memory>

#include "base/result.h"
#include "devices/probe.h"

namespace berth {

// BERTH_SIM is set: the GPUs are not real, and everything that shows them must say so.
bool driver_is_simulated();

// A probe for this host's driver; nothing is loaded before its first question. BERTH_SIM chooses
// the simulated driver that lies beside this program, BERTH_DRIVER_TIMEOUT the time limit.
// `on_slow` is called when a question takes long. Errors: a setting that cannot be used
// (ErrorKind::usage), or no simulated driver where it should be (no_driver).
Result<std::unique_ptr<Probe>> open_driver(std::function<void()> on_slow = nullptr);

}  // namespace berth
