// Reads the processes on a GPU from NVML's three lists (compute, graphics, MPS), merged by PID.
#pragma once

#include <string_view>
#include <vector>

#include "devices/gpu.h"
#include "devices/nvml_api.h"

namespace berth::nvml {

// The layout of the process lists, which depends only on the driver's version.
struct ListLayout {
  std::size_t v3_stride = sizeof(ProcessInfoV2);
};

// Drivers 535.43 to 535.86 use 32-byte entries in _v3, against the documentation.
ListLayout detect_list_layout(std::string_view driver_version);

struct ProcessListResult {
  std::vector<GpuProcess> processes;  // each PID once, sorted, without names and users
  Return compute = success;           // the error of the compute list
  Return optional_lists = success;    // the same for the graphics and MPS lists
};

// Graphics and MPS lists that this driver or device does not have count as empty; the compute list
// must exist. `processes` contains the lists that could be read even if another one failed.
ProcessListResult read_processes(const Api& api, Device device, ListLayout layout);

}  // namespace berth::nvml
