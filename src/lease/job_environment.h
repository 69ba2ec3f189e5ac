// The environment variables and arguments by which a job learns its GPUs.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "devices/gpu.h"

namespace berth {

// How CUDA_VISIBLE_DEVICES names GPUs.
enum class GpuIdFormat : std::uint8_t { index, uuid };

// The indices of the GPUs, such as "0,2:1". A GPU that is not in `gpus` (it was lost meanwhile) is
// named by its UUID, so that the job does not see fewer GPUs than it has.
std::string format_gpu_indices(const std::vector<Gpu>& gpus, const std::vector<std::string>& uuids);

// The variables that make_job_environment() may set and that have no meaning after the lease.
inline constexpr std::array<const char*, 5> kLeaseVariables{
    "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "BERTH_GPUS", "BERTH_LEASE", "BERTH_EPOCH"};

// The variables for a job with the lease id `lease` on the GPUs `uuids`, in their order. `gpus` are
// all GPUs of the host. GpuIdFormat::index gives UUIDs, too, where CUDA counts GPUs differently
// from the driver. `epoch` is Record::epoch; if it is not 0, BERTH_EPOCH is set, by which a data
// store can tell which of two holders came later.
std::vector<std::pair<std::string, std::string>> make_job_environment(
    const std::vector<Gpu>& gpus, const std::vector<std::string>& uuids, GpuIdFormat format,
    const std::string& lease, std::uint64_t epoch = 0);

// The argument of `docker run --gpus`: "device=GPU-1,GPU-2", with the double quotes, since docker
// reads the flag as CSV and would end the value at the comma.
std::string format_docker_devices(const std::vector<std::string>& uuids);

// `command` with each `placeholder_text` in its arguments replaced by `indices`. As with xargs -I,
// the name of the program is not changed. An empty placeholder replaces nothing.
std::vector<std::string> substitute_gpu_placeholder(const std::vector<std::string>& command,
                                                    const std::string& placeholder_text,
                                                    const std::string& indices);

}  // namespace berth
