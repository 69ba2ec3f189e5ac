// The processes on a GPU: NVML's three lists (compute, graphics, MPS), any version, merged by PID.
#pragma once

#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "devices/gpu.h"
#include "devices/nvml_api.h"

namespace berth::nvml {

// How this driver lays its process lists out; depends on the driver's version alone.
struct ListLayout {
  std::size_t v3_stride = sizeof(ProcessInfoV2);
};

// 535.43 to 535.86 silently used 32-byte entries in _v3.
ListLayout list_layout(std::string_view driver_version);

// The processes of `device`, each PID once, without names and users; or the driver's code if the
// lists cannot be had complete. Lists that this driver or device does not have count as empty, but
// at least the list of compute processes must exist.
tl::expected<std::vector<GpuProcess>, Return> read_processes(const Api& api, Device device,
                                                             ListLayout layout);

}  // namespace berth::nvml
