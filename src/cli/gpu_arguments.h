// GPUs as arguments of a command: "berth drain 0 2", "berth release 0,2".
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "lease/cancel_release.h"

namespace berth {

// Which GPUs a list means; asks the driver. A lost one will do, if the driver says its UUID.
Result<std::vector<NamedGpu>> find_gpus(const std::string& list);

}  // namespace berth
