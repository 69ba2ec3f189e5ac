// Who holds a lease looks at what its job uses, again and again, and tells others that it does.
#pragma once

#include <chrono>
#include <cstdint>

#include "broker/lease.h"
#include "broker/usage.h"
#include "devices/probe.h"

namespace berth {

// How closely to look: what is to be learned needs the peak; what is only reported does not.
enum class Attention : std::uint8_t { learning, reporting };

// Not safe for several threads at once.
class Sampler {
 public:
  // Both must outlive it. Nothing is asked before the first sample() that is due.
  Sampler(Probe& probe, Lease& lease, Attention attention);

  // Asks the driver if it is time to; gives how long until the next time. A driver that does not
  // answer costs samples, and nothing else.
  std::chrono::milliseconds sample();

  const Usage& usage() const { return meter_.usage(); }

 private:
  using Clock = std::chrono::steady_clock;

  Clock::duration interval(Clock::time_point now) const;
  void tell(Clock::time_point now);

  Probe& probe_;
  Lease& lease_;
  UsageMeter meter_;
  Attention attention_;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point next_;
  Clock::time_point told_ = begin_;  // that the lease is used
};

}  // namespace berth
