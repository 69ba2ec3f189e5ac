// How the cards of a host are connected, as NVML says: PCIe distance and NVLinks, pair by pair.
#pragma once

#include "devices/gpu.h"
#include "devices/nvml_api.h"

namespace berth::nvml {

// Of cards that are lost or cannot be opened, nothing is known but that they are there.
Topology read_topology(const Api& api, unsigned card_count);

}  // namespace berth::nvml
