// Classifies GPUs; see gpu_state.h.
#include "status/gpu_state.h"

#include <algorithm>
#include <fmt/format.h>

#include "status/explain.h"

namespace berth {
namespace {

// The memory that an idle driver uses for itself. The old memory call counts the driver's reserve
// as used: 308 MB on small cards, 912 MB on an idle A100. The new call does not, and reports a few
// MB on idle cards.
constexpr Bytes kMaxIdleMemory = mib(256);
constexpr Bytes kMaxIdleMemoryWithReserve = mib(1536);
// The memory that displays may use where the driver does not report the memory of each process
// (WSL).
constexpr Bytes kMaxDisplayMemory = gib(2);

}  // namespace

std::string_view to_string(GpuState state) {
  switch (state) {
    case GpuState::free:
      return "free";
    case GpuState::leased:
      return "leased";
    case GpuState::shared:
      return "shared";
    case GpuState::stranger:
      return "stranger";
    case GpuState::drained:
      return "drained";
    case GpuState::lost:
      return "lost";
    case GpuState::unknown:
      return "unknown";
  }
  return "unknown";
}

std::optional<Bytes> unexplained_memory(const Gpu& gpu) {
  if (!gpu.memory_used || gpu.memory_is_hosts) return std::nullopt;
  std::uint64_t explained = 0;
  bool unmeasured = false;
  for (const GpuProcess& process : gpu.processes) {
    explained += process.memory.value_or(Bytes{}).count;
    unmeasured = unmeasured || !process.memory;
  }
  const Bytes idle = gpu.memory_used_counts_reserved ? kMaxIdleMemoryWithReserve : kMaxIdleMemory;
  const std::uint64_t expected =
      explained + idle.count + (unmeasured ? kMaxDisplayMemory.count : 0);
  if (gpu.memory_used->count <= expected) return std::nullopt;
  return Bytes{gpu.memory_used->count - explained};
}

GpuStateReason classify(const GpuWithLeases& gpu_view) {
  const Gpu& gpu = gpu_view.gpu;
  if (gpu.health != Health::ok) {
    const GpuState state = gpu.health == Health::lost ? GpuState::lost : GpuState::unknown;
    if (!gpu_view.drain) return {state, gpu.problem};
    return {state, fmt::format("{}; {}", gpu.problem, describe_drain(*gpu_view.drain))};
  }
  if (gpu_view.drain) return {GpuState::drained, describe_drain(*gpu_view.drain)};
  if (gpu.mig_without_instances) {
    return {
        GpuState::drained,
        "MIG mode is on, but there is no instance; create one (sudo nvidia-smi mig -cgi PROFILE)"};
  }
  if (gpu.compute_mode == ComputeMode::prohibited) {
    return {GpuState::drained, "compute mode is prohibited; to allow jobs: sudo nvidia-smi -c 0"};
  }
  const std::string strangers = describe_strangers(gpu_view);
  if (!gpu_view.leases.empty()) {
    return {gpu_view.shared ? GpuState::shared : GpuState::leased, strangers};
  }
  if (!strangers.empty()) return {GpuState::stranger, strangers};
  return {GpuState::free, ""};
}

}  // namespace berth
