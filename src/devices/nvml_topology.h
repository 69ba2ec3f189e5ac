// How the cards of a host are connected, as NVML says: PCIe distance and NVLinks, pair by pair.
#pragma once

#include "devices/gpu.h"
#include "devices/nvml_api.h"

namespace berth::nvml {

// Cards that are lost or cannot be opened are left out.
Topology read_topology(const Api& api);

}  // namespace berth::nvml
