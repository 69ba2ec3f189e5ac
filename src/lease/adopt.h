// `berth adopt`: a lease on the GPUs that a running process uses without one.
//
// The process is a stranger on these GPUs, which keeps every other client off them. So the lease
// does not take a place in the queue: it delays only tickets that accept strangers, and is refused
// while such a ticket waits for one of the GPUs.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/unique_fd.h"
#include "devices/probe.h"
#include "lease/acquire_request.h"
#include "lease/lease.h"

namespace berth {

// A process of this user, by what identifies it for good: `handle` is its pidfd, which was opened
// before `start_ticks` was read.
struct ProcessToAdopt {
  pid_t pid = 0;
  const UniqueFd& handle;
  std::uint64_t start_ticks = 0;  // as in ProcessStat
};

// Makes a lease on all GPUs that the process and its descendants use. Of `request`, only the
// memory (nullopt: whole GPUs), the run time, the texts and the harbour count. The caller keeps the
// lease until the process ends (see Keeper).
//
// `probe` must not have a snapshot from before the handle was opened. Under the harbour's lock it
// is decided by plan(), with the leases and drains as they are, whether the GPUs can be leased.
// Errors: usage (the process has ended, uses no GPU, or more memory than it is to reserve),
// permission (it is another user's), impossible (its use cannot be seen from here), not_granted (it
// has a lease; or another lease, process or drain is in the way), and those of driver and harbour.
Result<Lease> adopt_process(Probe& probe, const ProcessToAdopt& process,
                            const AcquireRequest& request);

}  // namespace berth
