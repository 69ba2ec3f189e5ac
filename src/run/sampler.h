// Who holds a lease looks at what its job uses, again and again, and tells others that it does.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "devices/probe.h"
#include "lease/lease.h"
#include "profile/usage.h"

namespace berth {

// How closely to look: what is to be learned needs the peak; what is only reported does not.
enum class SamplingRate : std::uint8_t { learning, reporting };

// Not safe for several threads at once.
class Sampler {
 public:
  Sampler(const Lease& lease, SamplingRate rate);

  // How long until the driver is to be asked for the lease's GPUs; nothing or less: now.
  std::chrono::milliseconds time_to_next_sample() const;

  // What it said, or that it did not answer: that costs samples, and nothing else.
  void add_sample(const Result<std::vector<GpuSample>>& samples, Lease& lease);

  const Usage& usage() const { return meter_.usage(); }

 private:
  using Clock = std::chrono::steady_clock;

  Clock::duration interval(Clock::time_point now) const;

  UsageMeter meter_;
  SamplingRate rate_;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point next_sample_;
  Clock::time_point last_touch_ = begin_;  // that the lease is used
};

// Asks the driver, if it is time to; gives how long until the next time.
std::chrono::milliseconds sample_if_due(Sampler& sampler, Probe& probe, Lease& lease);

}  // namespace berth
