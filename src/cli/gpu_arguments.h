// Finds the GPUs that a user names as arguments: "berth drain 0 2", "berth release 0,2".
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "lease/cancel_and_release.h"

namespace berth {

// The GPUs that `list` names ("0,2", UUIDs), by querying the driver. A lost GPU is found, too, if
// the driver reports its UUID. Errors: as open_driver() and select_gpus().
Result<std::vector<NamedGpu>> find_gpus(const std::string& list);
// The same for several arguments.
Result<std::vector<NamedGpu>> find_gpus(const std::vector<std::string>& words);

// The index as in `berth status --json`: a number, or a text for a MIG instance; null if the GPU is
// known only by its UUID.
Json index_json(const NamedGpu& gpu);

}  // namespace berth
