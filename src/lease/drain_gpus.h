// Takes GPUs out of service and back into it ('berth drain', 'berth undrain'). Only root and the
// owner of the harbour may do this. harbour/drain.h is the mark that this sets.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "harbour/drain.h"
#include "harbour/record.h"

namespace berth {

// Drains the GPUs: no request is granted them any more. Returns the leases that hold one of them,
// which stay until they end. Draining a GPU again replaces the reason. Creates the harbour if
// necessary. ErrorKind::permission if this user may not drain GPUs.
Result<std::vector<Record>> drain_gpus(const std::vector<std::string>& uuids,
                                       const std::string& reason);

// All drained GPUs, also those that this host no longer has. ErrorKind::permission if this user may
// not undrain them. Creates no harbour.
Result<std::vector<Drain>> read_removable_drains();

// Takes the GPUs back into service and wakes the queue. Ignores GPUs that are not drained. Creates
// no harbour.
Result<void> undrain_gpus(const std::vector<std::string>& uuids);

// The UUID of the only drained GPU whose UUID is, or starts with, `start`; empty if no UUID does.
// ErrorKind::usage if several do.
Result<std::string> find_drained_gpu(const std::vector<Drain>& drains, const std::string& start);

}  // namespace berth
