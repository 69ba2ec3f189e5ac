// Judging of GPUs; see gpu_state.h.
#include "broker/gpu_state.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/users.h"

namespace berth {
namespace {

// What an idle driver keeps for itself. The old memory call counts the driver's reserve as used:
// 308 MB on small cards, 912 MB on an idle A100. The new one does not, and idle cards show a few
// MB.
constexpr Bytes kIdleUse = mib(256);
constexpr Bytes kIdleUseWithReserve = mib(1536);
// What displays may use where the driver does not tell how much each does (as under WSL).
constexpr Bytes kDisplayUse = gib(2);

std::string describe(const GpuProcess& process) {
  return fmt::format(
      "{} (pid {}{}) {} without a lease", process.name.value_or("a process"), process.pid,
      process.uid ? fmt::format(", user {}", user_name(*process.uid)) : "",
      process.memory ? fmt::format("uses {}", format_size(*process.memory)) : "runs");
}

std::string describe_strangers(const Gpu& gpu) {
  std::string text;
  for (const GpuProcess& process : gpu.processes) {
    if (!is_stranger(process)) continue;
    if (!text.empty()) text += "; ";
    text += describe(process);
  }
  return text;
}

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

bool is_stranger(const GpuProcess& process) {
  return process.kind == ProcessKind::compute;
}

std::optional<Bytes> unexplained_memory(const Gpu& gpu) {
  if (!gpu.memory_used) return std::nullopt;
  std::uint64_t explained = 0;
  bool unmeasured = false;
  for (const GpuProcess& process : gpu.processes) {
    explained += process.memory.value_or(Bytes{}).count;
    unmeasured = unmeasured || !process.memory;
  }
  const Bytes idle = gpu.memory_used_counts_reserved ? kIdleUseWithReserve : kIdleUse;
  const std::uint64_t expected = explained + idle.count + (unmeasured ? kDisplayUse.count : 0);
  if (gpu.memory_used->count <= expected) return std::nullopt;
  return Bytes{gpu.memory_used->count - explained};
}

Judgement judge(const Gpu& gpu) {
  if (gpu.health == Health::lost) return {GpuState::lost, gpu.problem};
  if (gpu.health == Health::unreadable) return {GpuState::unknown, gpu.problem};
  if (gpu.mig_without_instances) {
    return {GpuState::drained,
            "MIG mode is on and there is no instance; make one (sudo nvidia-smi mig -cgi PROFILE)"};
  }
  if (gpu.compute_mode == ComputeMode::prohibited) {
    return {GpuState::drained, "its compute mode is prohibited (sudo nvidia-smi -c 0 allows it)"};
  }
  if (std::any_of(gpu.processes.begin(), gpu.processes.end(), is_stranger)) {
    return {GpuState::stranger, describe_strangers(gpu)};
  }
  if (const auto memory = unexplained_memory(gpu)) {
    return {GpuState::stranger,
            fmt::format("{} are in use by a process that the driver does not list",
                        format_size(*memory))};
  }
  return {GpuState::free, ""};
}

}  // namespace berth
