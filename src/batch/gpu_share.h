// --per-gpu K: how much of a card each of K jobs may have, so that K fit and no more.
#pragma once

#include "base/quantity.h"
#include "base/result.h"
#include "lease/acquire.h"

namespace berth::batch {

// Of a card of this size; K is 2 or more.
Bytes share_of_card(Bytes card, unsigned jobs);

// The smallest of the GPUs that would do for the request; asks the driver.
Result<Bytes> smallest_card(const AcquireRequest& ask);

}  // namespace berth::batch
