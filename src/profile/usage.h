// Measures the memory, utilization and power of a lease's job from samples of the driver.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "devices/gpu.h"
#include "harbour/record.h"

namespace berth {

struct GpuUsage {
  std::string uuid;
  std::optional<Bytes> peak;  // of the job's memory; absent: the job was never seen on it
  // The averages of the whole card.
  std::optional<double> utilization_pct{};
  std::optional<double> power_w{};
};

struct Usage {
  std::vector<GpuUsage> gpus;
  unsigned samples = 0;
  unsigned samples_on_gpu = 0;                    // samples in which the job was on a GPU
  std::optional<std::chrono::milliseconds> idle;  // how long none of the GPUs was utilized
  // The highest used fraction of a card's memory, by all its processes together (0 to 1).
  double max_memory_fraction = 0;
  // The driver does not report the memory of processes, so the peak is the card's memory less what
  // was in use before.
  bool memory_is_inferred = false;
  // It is not known whether all processes of the job were counted.
  bool has_unattributed = false;
  // The framework of the job, if it is one that allocates most of a card by default and did so.
  std::string framework;

  // On the GPU where it is highest.
  std::optional<Bytes> peak() const;
};

// Of all GPUs of a lease together. One whose utilization the driver does not report is not idle.
enum class GpuLoad : std::uint8_t { unknown, idle, in_use };

// Adds up samples of one lease's GPUs. Not thread-safe.
class UsageMeter {
 public:
  using Clock = std::chrono::steady_clock;

  // `before`: all GPUs of the host at the time of the grant.
  UsageMeter(const Record& lease, const std::vector<Gpu>& before);

  // `gpu_samples` are in the order of the lease's GPUs. Reads no file.
  void add_sample(const std::vector<GpuSample>& gpu_samples, Clock::time_point now);

  const Usage& usage() const { return usage_; }
  // A process of another user that computed on a GPU which the lease has alone, and the UUID of
  // that GPU. Processes of root do not count: a container of the job may run as root.
  struct Intruder {
    GpuProcess process;
    std::string uuid;
  };
  // The first one since the grant.
  const std::optional<Intruder>& intruder() const { return intruder_; }
  // The UUID of the first GPU that the driver has lost since the grant; empty: none.
  const std::string& lost_gpu() const { return lost_gpu_; }
  // What the last sample showed.
  GpuLoad load() const { return load_; }

 private:
  // The average of a value over the time in which it was known.
  struct TimeAverage {
    double value_seconds = 0;
    double seconds = 0;

    void add(std::optional<double> value, double elapsed_seconds);
    std::optional<double> average() const;
  };
  struct GpuBaseline {
    std::set<std::int64_t> pids;
    std::optional<Bytes> used;
  };
  // The job's memory on one GPU; nullopt if it is unknown, or the job is not on it.
  std::optional<Bytes> measure_job_memory(const GpuSample& sample, const GpuBaseline& baseline);
  bool belongs_to_lease(const GpuProcess& process, const GpuBaseline& baseline) const;

  void find_intruder(const GpuSample& sample, const GpuBaseline& baseline);

  Record lease_;
  std::vector<GpuBaseline> baselines_;
  Usage usage_;
  std::vector<TimeAverage> utilization_pct_;  // for each GPU
  std::vector<TimeAverage> power_w_;          // for each GPU
  std::optional<Clock::time_point> last_sample_time_;
  GpuLoad load_ = GpuLoad::unknown;
  std::optional<Intruder> intruder_;
  std::string lost_gpu_;
};

}  // namespace berth
