// Attributes processes to a lease and adds up samples; see usage.h.
#include "profile/usage.h"

#include <algorithm>

#include "status/attribution.h"

namespace berth {

std::optional<Bytes> Usage::peak() const {
  std::optional<Bytes> max_peak;
  for (const GpuUsage& gpu : gpus) {
    if (gpu.peak) max_peak = std::max(max_peak.value_or(Bytes{}), *gpu.peak);
  }
  return max_peak;
}

void UsageMeter::TimeAverage::add(std::optional<double> value, double elapsed_seconds) {
  if (!value) return;
  value_seconds += *value * elapsed_seconds;
  seconds += elapsed_seconds;
}

std::optional<double> UsageMeter::TimeAverage::average() const {
  return seconds > 0 ? std::optional(value_seconds / seconds) : std::nullopt;
}

UsageMeter::UsageMeter(const Record& lease, const std::vector<Gpu>& before)
    : lease_(lease), utilization_pct_(lease.uuids.size()), power_w_(lease.uuids.size()) {
  for (const std::string& uuid : lease.uuids) {
    usage_.gpus.push_back({uuid, std::nullopt});
    GpuBaseline& baseline = baselines_.emplace_back();
    for (const Gpu& gpu : before) {
      if (gpu.uuid != uuid) continue;
      baseline.used = gpu.memory_used;
      for (const GpuProcess& process : gpu.processes) baseline.pids.insert(process.pid);
    }
  }
}

// All processes that started after the grant belong to an exclusive lease. On a shared GPU only
// those count that certainly run under the lease.
bool UsageMeter::belongs_to_lease(const GpuProcess& process, const GpuBaseline& baseline) const {
  if (process.kind == ProcessKind::graphics) return false;
  const bool is_exclusive = !lease_.request.memory && lease_.parent_lease.empty();
  // A process that was on the GPU before may belong to it, too: a Python program can request a
  // lease while it uses the GPU.
  if (is_exclusive && !baseline.pids.contains(process.pid)) return true;
  return runs_under(process, lease_);
}

void UsageMeter::find_intruder(const GpuSample& sample, const GpuBaseline& baseline) {
  const bool is_exclusive = !lease_.request.memory && lease_.parent_lease.empty();
  if (intruder_ || !is_exclusive) return;
  for (const GpuProcess& process : sample.processes) {
    const bool is_foreign = process.kind == ProcessKind::compute && process.uid &&
                            *process.uid != lease_.uid && *process.uid != 0 &&
                            !baseline.pids.contains(process.pid);
    if (!is_foreign || is_driver_daemon(process) || runs_under(process, lease_)) continue;
    intruder_ = Intruder{process, sample.uuid};
    return;
  }
}

std::optional<Bytes> UsageMeter::measure_job_memory(const GpuSample& sample,
                                                    const GpuBaseline& baseline) {
  std::uint64_t sum = 0;
  bool on_gpu = false;
  bool memory_known = true;
  // An incomplete list does not prove that a process is absent.
  usage_.has_unattributed = usage_.has_unattributed || !sample.complete;
  for (const GpuProcess& process : sample.processes) {
    if (is_driver_daemon(process)) continue;
    if (!belongs_to_lease(process, baseline)) {
      // It was there before the grant, or its user is known and it belongs to another lease.
      // Otherwise it is in a container, and may belong to this lease.
      const bool explained = process.uid || baseline.pids.contains(process.pid);
      usage_.has_unattributed = usage_.has_unattributed || !explained;
      continue;
    }
    on_gpu = true;
    if (usage_.framework.empty()) usage_.framework = process.framework;
    memory_known = memory_known && process.memory;
    sum += process.memory.value_or(Bytes{}).count;
  }
  if (!on_gpu) return std::nullopt;
  if (memory_known) return Bytes{sum};
  const bool is_exclusive = !lease_.request.memory && lease_.parent_lease.empty();
  if (!is_exclusive || sample.memory_is_hosts || !sample.memory_used || !baseline.used ||
      *sample.memory_used < *baseline.used) {
    usage_.has_unattributed = true;
    return std::nullopt;
  }
  usage_.memory_is_inferred = true;
  return Bytes{sample.memory_used->count - baseline.used->count};
}

void UsageMeter::add_sample(const std::vector<GpuSample>& gpu_samples, Clock::time_point now) {
  const double elapsed_seconds =
      last_sample_time_ ? std::chrono::duration<double>(now - *last_sample_time_).count() : 0;
  last_sample_time_ = now;
  bool on_gpu = false;
  load_ = gpu_samples.empty() ? GpuLoad::unknown : GpuLoad::idle;
  for (std::size_t i = 0; i < std::min(gpu_samples.size(), baselines_.size()); ++i) {
    const GpuSample& sample = gpu_samples[i];
    GpuUsage& gpu = usage_.gpus[i];
    find_intruder(sample, baselines_[i]);
    if (sample.lost && lost_gpu_.empty()) lost_gpu_ = sample.uuid;
    if (sample.memory_total && sample.memory_used && sample.memory_total->count > 0) {
      usage_.max_memory_fraction =
          std::max(usage_.max_memory_fraction, static_cast<double>(sample.memory_used->count) /
                                                   static_cast<double>(sample.memory_total->count));
    }
    if (const auto memory = measure_job_memory(sample, baselines_[i])) {
      on_gpu = true;
      gpu.peak = std::max(gpu.peak.value_or(Bytes{}), *memory);
    }
    if (!sample.utilization_pct && load_ == GpuLoad::idle) load_ = GpuLoad::unknown;
    if (sample.utilization_pct.value_or(0) > 0) load_ = GpuLoad::in_use;
    utilization_pct_[i].add(sample.utilization_pct, elapsed_seconds);
    power_w_[i].add(sample.power_w, elapsed_seconds);
    gpu.utilization_pct = utilization_pct_[i].average();
    gpu.power_w = power_w_[i].average();
  }
  ++usage_.samples;
  if (on_gpu) ++usage_.samples_on_gpu;
  const bool has_measurement =
      std::any_of(usage_.gpus.begin(), usage_.gpus.end(),
                  [](const GpuUsage& gpu) { return gpu.utilization_pct.has_value(); });
  if (!has_measurement) return;
  const auto idle = load_ == GpuLoad::idle ? std::chrono::duration<double>(elapsed_seconds)
                                           : std::chrono::duration<double>(0);
  usage_.idle = usage_.idle.value_or(std::chrono::milliseconds(0)) +
                std::chrono::round<std::chrono::milliseconds>(idle);
}

}  // namespace berth
