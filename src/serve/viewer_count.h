// Whether anybody watches: what decides how often it is worthwhile to look.
#pragma once

#include <atomic>
#include <chrono>

#include "base/event_fd.h"

namespace berth {

// Every thread may use it.
class ViewerCount {
 public:
  using Clock = std::chrono::steady_clock;

  void came() {
    const bool first = viewers_.fetch_add(1) == 0;
    if (first) poke_();
  }
  void left() { viewers_.fetch_sub(1); }

  // Somebody asked once, and may ask again.
  void asked(Clock::time_point now) {
    const bool nobody = !anybody(now);
    asked_ = now.time_since_epoch().count();
    if (nobody) poke_();
  }
  // Something was changed by us: it is worthwhile to look at once.
  void changed() {
    changed_ = true;
    poke_();
  }
  bool take_changed() { return changed_.exchange(false); }

  bool anybody(Clock::time_point now) const {
    constexpr std::chrono::seconds kStays(3);
    return viewers_ > 0 || now - Clock::time_point(Clock::duration(asked_)) < kStays;
  }
  int viewers() const { return viewers_; }

  // Readable when somebody has come where nobody was.
  const EventFd& poke() const { return poke_; }

 private:
  std::atomic<int> viewers_{0};
  std::atomic<bool> changed_{false};
  std::atomic<Clock::rep> asked_{Clock::rep{-1} << 40};
  EventFd poke_;
};

}  // namespace berth
