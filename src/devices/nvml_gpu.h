// Reads the state of one device through NVML.
#pragma once

#include "devices/gpu.h"
#include "devices/nvml_api.h"
#include "devices/nvml_processes.h"
#include "devices/process_table.h"

namespace berth::nvml {

// The state that all devices of one snapshot or sample share.
struct HostContext {
  ListLayout layout;
  // The device is the only card of the host, without MIG instances; see Gpu::memory_is_hosts.
  bool may_use_host_memory = false;
  ProcessTable processes{};
};

// Never fails: values that the driver does not report are nullopt, and `health` says whether the
// device is lost or unreadable. Does not set GpuProcess::lease; ProcessMemoryReader does that
// later.
Gpu read_gpu(const Api& api, Device device, GpuIndex index, HostContext& host);

// The same for a device that cannot be opened.
Gpu make_unreadable_gpu(const Api& api, Return answer, GpuIndex index);

// Reads only the device's use. The caller sets the UUID.
GpuSample read_sample(const Api& api, Device device, HostContext& host);

}  // namespace berth::nvml
