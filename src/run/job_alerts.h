// Decides when the user of a running job is notified that its announced end is near, or that its
// GPUs are idle. Reads no clock, file or driver: the caller passes the values.
#pragma once

#include <chrono>
#include <optional>

#include "base/time.h"
#include "profile/usage.h"

namespace berth {

// Each end is due once, `before` the end. If the end is nearer than twice that time when it becomes
// known, it is due halfway.
class EndAlert {
 public:
  // `since`: when the job got its GPUs.
  EndAlert(std::chrono::nanoseconds before, TimePoint since) : before_(before), known_(since) {}

  // The end that is announced now; nullopt: none is.
  void set_end(std::optional<TimePoint> end, TimePoint now);
  // When to report the end; nullopt: there is no end, or it was reported already.
  std::optional<TimePoint> due() const { return due_; }
  void set_reported() { due_.reset(); }

 private:
  std::chrono::nanoseconds before_;
  TimePoint known_;  // since when the end is known
  std::optional<TimePoint> end_;
  std::optional<TimePoint> due_;
};

// Reports each idle time once. After that, a GPU must be in use before it reports again.
class IdleAlert {
 public:
  using Clock = UsageMeter::Clock;

  explicit IdleAlert(std::chrono::nanoseconds limit) : limit_(limit) {}

  // `load` is that of the last sample. Returns how long the GPUs have been idle when it is time to
  // report that. An unknown load is not idle: the time begins again.
  std::optional<std::chrono::nanoseconds> observe(GpuLoad load, Clock::time_point now);

 private:
  std::chrono::nanoseconds limit_;
  std::optional<Clock::time_point> idle_since_;
  bool is_reported_ = false;
};

}  // namespace berth
