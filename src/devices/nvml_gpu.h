// Everything that NVML says of one device, as one Gpu.
#pragma once

#include "devices/gpu.h"
#include "devices/nvml_api.h"
#include "devices/nvml_processes.h"
#include "devices/process_table.h"

namespace berth::nvml {

// What the devices of one reading have in common.
struct HostContext {
  ListLayout layout;
  // The only card of the host, and not cut into MIG instances; see Gpu::memory_is_hosts.
  bool may_use_host_memory = false;
  ProcessTable processes{};
};

// Never fails: what the driver does not give is absent, and a device that is lost or cannot be read
// says so in its health.
// Processes have no lease yet: ProcessMemoryReader reads those last.
Gpu read_gpu(const Api& api, Device device, GpuIndex index, HostContext& host);

// The same for a device that could not even be opened.
Gpu make_unreadable_gpu(const Api& api, Return answer, GpuIndex index);

// How it is used, and nothing else; without its UUID.
GpuSample read_sample(const Api& api, Device device, HostContext& host);

}  // namespace berth::nvml
