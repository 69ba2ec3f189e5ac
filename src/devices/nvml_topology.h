// Reads how the cards of a host are connected through NVML: PCIe proximity and NVLinks of each
// pair.
#pragma once

#include "devices/gpu.h"
#include "devices/nvml_api.h"

namespace berth::nvml {

// Connections of cards that are lost or cannot be opened are present without values.
Topology read_topology(const Api& api, unsigned card_count);

}  // namespace berth::nvml
