// Everything that NVML says of one device, as one Gpu.
#pragma once

#include "devices/gpu.h"
#include "devices/nvml_api.h"
#include "devices/nvml_processes.h"

namespace berth::nvml {

// Never fails: what the driver does not give is absent, and a device that is lost or cannot be read
// says so in its health.
Gpu read_gpu(const Api& api, Device device, GpuIndex index, ListLayout layout);

// The same for a device that could not even be opened.
Gpu unopened_gpu(const Api& api, Return answer, GpuIndex index);

// How it is used, and nothing else; without its UUID.
GpuUse read_use(const Api& api, Device device, ListLayout layout);

}  // namespace berth::nvml
