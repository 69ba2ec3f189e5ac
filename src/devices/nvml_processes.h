// The processes on a GPU: NVML's three lists (compute, graphics, MPS), any version, merged by PID.
#pragma once

#include <string_view>
#include <vector>

#include "devices/gpu.h"
#include "devices/nvml_api.h"

namespace berth::nvml {

// How this driver lays its process lists out; depends on the driver's version alone.
struct ListLayout {
  std::size_t v3_stride = sizeof(ProcessInfoV2);
};

// 535.43 to 535.86 silently used 32-byte entries in _v3.
ListLayout detect_list_layout(std::string_view driver_version);

struct ProcessListResult {
  std::vector<GpuProcess> processes;  // each PID once, by PID, without names and users
  Return compute = success;           // why the list of compute processes could not be had
  Return optional_lists = success;    // the same for the graphics and MPS lists
};

// Lists that this driver or device does not have count as empty, but the list of compute processes
// must exist. What could be read is there even if another list failed.
ProcessListResult read_processes(const Api& api, Device device, ListLayout layout);

}  // namespace berth::nvml
