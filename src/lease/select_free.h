// Choosing GPUs that are free now, without a lease: for who only wants to know.
#pragma once

#include <string>
#include <vector>

#include "lease/acquire.h"

namespace berth {

// The UUIDs of GPUs that a lease would be granted now if nobody stood in the queue. The next moment
// they may be somebody's. Inside a lease: of its GPUs. Errors as of acquire();
// ErrorKind::not_granted if there are too few. Makes no harbour where there is none.
Result<std::vector<std::string>> select_free_gpus(Probe& probe, const AcquireRequest& request);

}  // namespace berth
