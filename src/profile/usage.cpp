// Adding up; see usage.h.
#include "profile/usage.h"

#include <algorithm>

#include "status/attribution.h"

namespace berth {

std::optional<Bytes> Usage::peak() const {
  std::optional<Bytes> most;
  for (const GpuUsage& gpu : gpus) {
    if (gpu.peak) most = std::max(most.value_or(Bytes{}), *gpu.peak);
  }
  return most;
}

UsageMeter::UsageMeter(const Record& lease, const std::vector<Gpu>& before)
    : lease_(lease), utilized_(lease.uuids.size()), measured_(lease.uuids.size()) {
  for (const std::string& uuid : lease.uuids) {
    usage_.gpus.push_back({uuid, std::nullopt, std::nullopt});
    Before& one = before_.emplace_back();
    for (const Gpu& gpu : before) {
      if (gpu.uuid != uuid) continue;
      one.used = gpu.memory_used;
      for (const GpuProcess& process : gpu.processes) one.processes.insert(process.pid);
    }
  }
}

// An exclusive lease has all processes that came after it. Beside other leases, only certain ones
// count.
bool UsageMeter::is_ours(const GpuProcess& process, const Before& before) const {
  if (process.kind == ProcessKind::graphics) return false;
  const bool alone = !lease_.request.memory && lease_.within.empty();
  // A Python program leases while it is on the GPU already.
  if (alone && !before.processes.contains(process.pid)) return true;
  return runs_under(process, lease_);
}

std::optional<Bytes> UsageMeter::memory_of_job(const GpuUse& use, const Before& before) {
  std::uint64_t sum = 0;
  bool seen = false;
  bool told = true;
  // An incomplete list does not prove that a process is absent.
  usage_.unclear = usage_.unclear || !use.complete;
  for (const GpuProcess& process : use.processes) {
    if (is_driver_daemon(process)) continue;
    if (!is_ours(process, before)) {
      // It was there before, or it belongs to another lease; or it is in a container.
      const bool known = process.uid || before.processes.contains(process.pid);
      usage_.unclear = usage_.unclear || !known;
      continue;
    }
    seen = true;
    if (usage_.framework.empty()) usage_.framework = process.framework;
    told = told && process.memory;
    sum += process.memory.value_or(Bytes{}).count;
  }
  if (!seen) return std::nullopt;
  if (told) return Bytes{sum};
  const bool alone = !lease_.request.memory && lease_.within.empty();
  if (!alone || use.memory_is_hosts || !use.memory_used || !before.used ||
      *use.memory_used < *before.used) {
    usage_.unclear = true;
    return std::nullopt;
  }
  usage_.from_card = true;
  return Bytes{use.memory_used->count - before.used->count};
}

void UsageMeter::take(const std::vector<GpuUse>& uses, Clock::time_point now) {
  const double passed = last_ ? std::chrono::duration<double>(now - *last_).count() : 0;
  last_ = now;
  bool seen = false;
  idle_ = !uses.empty();
  for (std::size_t i = 0; i < std::min(uses.size(), before_.size()); ++i) {
    const GpuUse& use = uses[i];
    GpuUsage& gpu = usage_.gpus[i];
    if (use.memory_total && use.memory_used && use.memory_total->count > 0) {
      usage_.fullest = std::max(usage_.fullest, static_cast<double>(use.memory_used->count) /
                                                    static_cast<double>(use.memory_total->count));
    }
    if (const auto memory = memory_of_job(use, before_[i])) {
      seen = true;
      gpu.peak = std::max(gpu.peak.value_or(Bytes{}), *memory);
    }
    idle_ = idle_ && use.utilization_pct == 0U;
    if (!use.utilization_pct) continue;
    utilized_[i] += *use.utilization_pct * passed;
    measured_[i] += passed;
    if (measured_[i] > 0) gpu.utilization_pct = utilized_[i] / measured_[i];
  }
  ++usage_.samples;
  if (seen) ++usage_.seen;
  const bool any = std::any_of(measured_.begin(), measured_.end(), [](double s) { return s > 0; });
  if (!any) return;
  const auto idle =
      idle_ ? std::chrono::duration<double>(passed) : std::chrono::duration<double>(0);
  usage_.idle = usage_.idle.value_or(std::chrono::milliseconds(0)) +
                std::chrono::round<std::chrono::milliseconds>(idle);
}

}  // namespace berth
