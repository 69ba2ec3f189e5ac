// Which devices a CUDA program sees, and in which order: CUDA_VISIBLE_DEVICES and
// CUDA_DEVICE_ORDER.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "sim/server.h"

namespace berth::sim {

// The units that CUDA enumerates. `visible` is CUDA_VISIBLE_DEVICES (nullopt: not set), `order` is
// CUDA_DEVICE_ORDER. Cards for which `lost` is true do not exist for CUDA. Pure.
std::vector<Unit> visible_devices(const std::vector<Card>& cards, const std::vector<bool>& lost,
                                  std::optional<std::string_view> visible,
                                  std::optional<std::string_view> order);

}  // namespace berth::sim
