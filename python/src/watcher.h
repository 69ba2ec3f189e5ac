// Puts leases back that somebody deletes while a Python program holds them, as `berth run` does.
#pragma once

#include <memory>

#include "python/src/lease.h"

namespace berth::python {

// From a second after now until it is released or nobody has it any more, by one thread for all
// leases of the process, which sleeps. Not in forks.
void watch(const std::shared_ptr<HeldLease>& lease);

// For the time of a fork, of which Python warns where there are threads.
void pause_watching();
void resume_watching();

}  // namespace berth::python
