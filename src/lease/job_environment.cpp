// Formats GPUs for CUDA, docker and command lines; see job_environment.h.
#include "lease/job_environment.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/text.h"
#include "lease/gpu_list.h"

namespace berth {
namespace {

// Whether CUDA gives this GPU, and so the GPUs after it, the same number as NVML. NVML numbers all
// cards of the host. CUDA skips the cards that it cannot open (lost cards, cards without access,
// cards in MIG mode without an instance). Where there is a MIG instance, CUDA numbers instances
// instead of cards.
bool has_same_cuda_index(const Gpu& gpu) {
  return gpu.health != Health::lost && gpu.uuid && !gpu.index.instance &&
         !gpu.mig_without_instances;
}

// Whether indices mean the same GPUs to CUDA. A single card that CUDA counts differently, anywhere
// in the host, shifts the numbers of the others.
bool can_use_indices(const std::vector<Gpu>& gpus, const std::vector<std::string>& uuids) {
  return std::all_of(gpus.begin(), gpus.end(), has_same_cuda_index) &&
         std::all_of(uuids.begin(), uuids.end(),
                     [&](const std::string& uuid) { return find_gpu(gpus, uuid) != nullptr; });
}

std::string replace_all(const std::string& text, const std::string& part, const std::string& by) {
  std::string out;
  std::size_t done = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, done)) {
    out.append(text, done, at - done).append(by);
    done = at + part.size();
  }
  return out.append(text, done);
}

}  // namespace

std::string format_gpu_indices(const std::vector<Gpu>& gpus,
                               const std::vector<std::string>& uuids) {
  return join_text(uuids, ",", [&](const std::string& uuid) {
    const Gpu* gpu = find_gpu(gpus, uuid);
    return gpu == nullptr ? uuid : to_string(gpu->index);
  });
}

std::vector<std::pair<std::string, std::string>> make_job_environment(
    const std::vector<Gpu>& gpus, const std::vector<std::string>& uuids, GpuIdFormat format,
    const std::string& lease, std::uint64_t epoch) {
  const std::string indices = format_gpu_indices(gpus, uuids);
  const bool by_index = format == GpuIdFormat::index && can_use_indices(gpus, uuids);
  std::vector<std::pair<std::string, std::string>> variables{
      {"CUDA_DEVICE_ORDER", "PCI_BUS_ID"},  // the order of the driver's indices
      {"CUDA_VISIBLE_DEVICES", by_index ? indices : join_text(uuids, ",")},
      {"NVIDIA_VISIBLE_DEVICES", join_text(uuids, ",")},
      {"BERTH_GPUS", indices},
      {"BERTH_LEASE", lease},
  };
  if (epoch > 0) variables.emplace_back("BERTH_EPOCH", std::to_string(epoch));
  return variables;
}

std::string format_docker_devices(const std::vector<std::string>& uuids) {
  return fmt::format("\"device={}\"", join_text(uuids, ","));
}

std::vector<std::string> substitute_gpu_placeholder(const std::vector<std::string>& command,
                                                    const std::string& placeholder_text,
                                                    const std::string& indices) {
  std::vector<std::string> out = command;
  if (placeholder_text.empty()) return out;
  for (std::size_t i = 1; i < out.size(); ++i) {
    out[i] = replace_all(out[i], placeholder_text, indices);
  }
  return out;
}

}  // namespace berth
