// The devices that a CUDA program sees, by CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "sim/server.h"

namespace berth::sim {

// The units that CUDA enumerates, in CUDA's order. `visible` is CUDA_VISIBLE_DEVICES (nullopt: not
// set), `order` is CUDA_DEVICE_ORDER. CUDA does not see cards for which `lost` is true. A pure
// function.
std::vector<Unit> visible_devices(const std::vector<Card>& cards, const std::vector<bool>& lost,
                                  std::optional<std::string_view> visible,
                                  std::optional<std::string_view> order);

}  // namespace berth::sim
