// Leases inside a lease: a request with BERTH_LEASE set gets GPUs of that lease and never waits in
// the queue.
#pragma once

#include <optional>

#include "devices/probe.h"
#include "lease/acquire_request.h"
#include "lease/lease.h"

namespace berth {

// The live lease `id`, the value of BERTH_LEASE. Nothing if the lease has ended.
// ErrorKind::permission if it belongs to another user.
Result<std::optional<Record>> find_parent_lease(Harbour& harbour, const std::string& id);

// Whether BERTH_LEASE names a lease that has not ended, so that acquire() makes a lease inside it.
// False if that cannot be read: acquire() reports it.
bool runs_inside_lease();

// The GPUs of `parent` for a request inside it: those that the fewest leases inside `parent`, among
// `leases`, use. ErrorKind::impossible if too few GPUs of `parent` match the request.
Result<std::vector<std::string>> select_parent_gpus(const Record& parent,
                                                    const std::vector<Record>& leases,
                                                    const Request& request,
                                                    const Snapshot& snapshot);

// Makes a lease inside `parent`, without waiting: a user who runs several programs in one lease
// wants all of them to run, and two programs of a pipe that waited for each other would never end.
// Several such leases may share a GPU. ErrorKind::impossible if `parent` has too few GPUs, or less
// memory on each than the request reserves. ErrorKind::not_granted if `parent` ends meanwhile.
Result<Lease> acquire_sublease(Probe& probe, Harbour harbour, const Record& parent,
                               const AcquireRequest& request);

}  // namespace berth
