// The holder of a lease samples what its job uses, and marks the lease as used.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "devices/probe.h"
#include "lease/lease.h"
#include "profile/usage.h"

namespace berth {

// Learning a profile needs the peak, and so frequent samples; a report does not.
enum class SamplingRate : std::uint8_t { learning, reporting };

// Decides when to sample, and adds the samples up. Not thread-safe.
class Sampler {
 public:
  Sampler(const Lease& lease, SamplingRate rate);

  // Time until the driver should be queried for the lease's GPUs; zero or less: now.
  std::chrono::milliseconds time_to_next_sample() const;

  // Adds the driver's answer. An error costs this sample, and nothing else. Touches the lease if
  // its GPUs are in use, so that other users do not see it as idle.
  void add_sample(const Result<std::vector<GpuSample>>& samples, Lease& lease);

  const Usage& usage() const { return meter_.usage(); }
  const UsageMeter& meter() const { return meter_; }
  // What the last sample showed; unknown if the driver did not answer, or before the first one.
  GpuLoad load() const { return load_; }

 private:
  using Clock = std::chrono::steady_clock;

  Clock::duration interval(Clock::time_point now) const;

  UsageMeter meter_;
  SamplingRate rate_;
  GpuLoad load_ = GpuLoad::unknown;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point next_sample_;
  Clock::time_point last_touch_ = begin_;  // when the lease was last marked as used
};

// Queries the driver if a sample is due; returns the time until the next one.
std::chrono::milliseconds sample_if_due(Sampler& sampler, Probe& probe, Lease& lease);

}  // namespace berth
