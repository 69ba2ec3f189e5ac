// Gives back the leases that earlier calls of gpuselect took for the same shell.
#pragma once

#include <string>

#include "base/result.h"
#include "devices/probe.h"
#include "run/lease_owner.h"

namespace berth {

// A loop such as `for i in …; do CUDA_VISIBLE_DEVICES=$(gpuselect) train $i; done` calls gpuselect
// again and again, and no call gives back what the one before took. So this does: it releases the
// shell's leases that belong to `owner` and have this label.
//
// It keeps a lease that a job may still need: if a process computes on its GPUs; if `owner` has a
// child, or its session a process that has lost its parent, which was started after the grant; or
// if any process of the user that was started after the grant has the lease's GPUs in its
// CUDA_VISIBLE_DEVICES. The last one is found in any session (setsid, tmux).
Result<void> release_earlier_leases(const OwnerProcess& owner, const std::string& label,
                                    Probe& probe);

}  // namespace berth
