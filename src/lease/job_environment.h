// What a job sees of its lease: environment variables, and words in its command line.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "devices/gpu.h"

namespace berth {

// How CUDA_VISIBLE_DEVICES names GPUs.
enum class GpuIdFormat : std::uint8_t { index, uuid };

// The indices of the GPUs for people, "0,2:1". One that the snapshot does not have (it was lost
// meanwhile) is named by its UUID: a job must not think that it has fewer.
std::string format_gpu_indices(const std::vector<Gpu>& gpus, const std::vector<std::string>& uuids);

// The variables to set for a job that holds `lease` on the GPUs `uuids`, in their order; `gpus` are
// all of the host. UUIDs take the place of indices where those would mislead CUDA. `epoch` as in
// Record: BERTH_EPOCH, if there is one, tells a store which of two holders came later.
std::vector<std::pair<std::string, std::string>> make_job_environment(
    const std::vector<Gpu>& gpus, const std::vector<std::string>& uuids, GpuIdFormat format,
    const std::string& lease, std::uint64_t epoch = 0);

// What `docker run --gpus` takes for these: "device=GPU-1,GPU-2" with the double quotes, since
// docker reads the flag as CSV and would end the value at the comma.
std::string format_docker_devices(const std::vector<std::string>& uuids);

// `command` with each `placeholder_text` in its arguments replaced by `indices`. As with xargs -I,
// the program's own name stays as it is. An empty text is nowhere.
std::vector<std::string> substitute_gpu_placeholder(const std::vector<std::string>& command,
                                                    const std::string& placeholder_text,
                                                    const std::string& indices);

}  // namespace berth
