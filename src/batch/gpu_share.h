// --per-gpu K: how much memory each of K jobs on a GPU reserves, so that K fit and no more.
#pragma once

#include "base/quantity.h"
#include "base/result.h"
#include "lease/acquire.h"

namespace berth::batch {

// The memory that each of `jobs` jobs (2 or more) reserves on a GPU of this size.
Bytes memory_per_job(Bytes gpu_memory, unsigned jobs);

// The memory of the smallest GPU that matches the request. Calls the driver. ErrorKind::impossible
// if there is no matching GPU whose memory the driver reports.
Result<Bytes> smallest_gpu_memory(const AcquireRequest& acquire_request);

}  // namespace berth::batch
