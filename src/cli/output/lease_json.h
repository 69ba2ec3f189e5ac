// The JSON of a new lease, as `berth acquire --print json` and `berth adopt --json` print it.
#pragma once

#include "base/json.h"
#include "lease/lease.h"

namespace berth {

// The index of a card is a number, that of a MIG instance a string, as in `berth status --json`.
Json lease_json(const Lease& lease);

}  // namespace berth
