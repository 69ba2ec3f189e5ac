// --per-gpu K: how much of a card each of K jobs may have, so that K fit and no more.
#pragma once

#include "base/quantity.h"
#include "base/result.h"
#include "lease/acquire.h"

namespace berth::batch {

// Of a card of this size; K is 2 or more.
Bytes memory_per_job(Bytes gpu_memory, unsigned jobs);

// The smallest of the GPUs that would do for the request; asks the driver.
Result<Bytes> smallest_gpu_memory(const AcquireRequest& acquire_request);

}  // namespace berth::batch
