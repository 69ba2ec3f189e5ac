// A request inside a lease: its GPUs come from that lease, never from the queue.
#pragma once

#include <optional>

#include "lease/acquire.h"

namespace berth {

// The lease of this id, which BERTH_LEASE names, if it lives. One that has ended is nothing;
// another user's is ErrorKind::permission.
Result<std::optional<Record>> find_parent_lease(Harbour& harbour, const std::string& id);

// The GPUs of `parent` for a request inside it: those that the fewest of `leases` inside it use.
// ErrorKind::impossible if it has too few that would do.
Result<std::vector<std::string>> select_parent_gpus(const Record& parent,
                                                    const std::vector<Record>& leases,
                                                    const Request& request,
                                                    const Snapshot& snapshot);

// Carves a lease out of `parent`, without waiting: whoever put several programs into one lease
// wants them to run, and a pipe between two that waited for each other would never end.
// ErrorKind::impossible if `parent` has too few GPUs, or less memory on each than is asked for.
Result<Lease> acquire_sublease(Probe& probe, Harbour harbour, const Record& parent,
                               const AcquireRequest& request);

}  // namespace berth
