// What the job of a lease uses, put together from what the driver says again and again.
#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "devices/gpu.h"
#include "harbour/record.h"

namespace berth {

struct GpuUsage {
  std::string uuid;
  std::optional<Bytes> peak;              // the most that the job had there; nothing: never seen
  std::optional<double> utilization_pct;  // the card's, on average
};

struct Usage {
  std::vector<GpuUsage> gpus;
  unsigned samples = 0;                           // how often it was looked at
  unsigned samples_on_gpu = 0;                    // and seen on a GPU
  std::optional<std::chrono::milliseconds> idle;  // how long none of the GPUs was utilized
  double max_memory_fraction = 0;   // how full a card was at most, of 1, all its processes together
  bool memory_is_inferred = false;  // the memory of processes is not told: it is the card's, less
                                    // what was in use before
  bool has_unattributed = false;    // there were processes that could not be attributed
  std::string framework;            // one that takes most of a card by default, and did

  // On the GPU where it is most.
  std::optional<Bytes> peak() const;
};

// Adds up samples of one lease's GPUs. Not safe for several threads at once.
class UsageMeter {
 public:
  using Clock = std::chrono::steady_clock;

  // `before`: every GPU of the host as it was when the lease was granted.
  UsageMeter(const Record& lease, const std::vector<Gpu>& before);

  // What the driver says now. Reads no file.
  void add_sample(const std::vector<GpuSample>& gpu_samples, Clock::time_point now);

  const Usage& usage() const { return usage_; }
  // Nothing is computed on any of the GPUs, for sure, as of the last sample.
  bool idle() const { return idle_; }

 private:
  struct GpuBaseline {
    std::set<std::int64_t> pids;
    std::optional<Bytes> used;
  };
  // What the job has on one GPU; nothing if that cannot be told, or it has nothing there.
  std::optional<Bytes> measure_job_memory(const GpuSample& sample, const GpuBaseline& baseline);
  bool belongs_to_lease(const GpuProcess& process, const GpuBaseline& baseline) const;

  Record lease_;
  std::vector<GpuBaseline> baselines_;
  Usage usage_;
  std::vector<double> utilized_percent_seconds_;  // percent times seconds, of each GPU
  std::vector<double> measured_seconds_;          // seconds
  std::optional<Clock::time_point> last_sample_time_;
  bool idle_ = false;
};

}  // namespace berth
