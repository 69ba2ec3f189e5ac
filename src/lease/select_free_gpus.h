// Chooses GPUs that are free now, without a ticket and without a lease: for the Python package,
// where it stands in for tools that only choose.
#pragma once

#include <string>
#include <vector>

#include "devices/probe.h"
#include "lease/acquire_request.h"

namespace berth {

// The UUIDs of the GPUs that the request would be granted now if the queue were empty. Another
// client may acquire them at any time after. Inside a lease (BERTH_LEASE), they are GPUs of that
// lease. Errors are those of acquire(); ErrorKind::not_granted if too few GPUs are free. Creates no
// harbour.
Result<std::vector<std::string>> select_free_gpus(Probe& probe, const AcquireRequest& request);

}  // namespace berth
