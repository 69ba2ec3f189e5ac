// Whether anybody watches: what decides how often it is worthwhile to look.
#pragma once

#include <atomic>
#include <chrono>

#include "base/event_fd.h"

namespace berth::serve {

// Every thread may use it.
class ViewerCount {
 public:
  using Clock = std::chrono::steady_clock;

  void add() {
    const bool first = viewers_.fetch_add(1) == 0;
    if (first) wake_event_.notify();
  }
  void remove() { viewers_.fetch_sub(1); }

  // Somebody asked once, and may ask again.
  void record_request(Clock::time_point now) {
    const bool nobody = !has_viewers(now);
    last_request_ = now.time_since_epoch().count();
    if (nobody) wake_event_.notify();
  }
  // Something was changed by us: it is worthwhile to look at once.
  void record_change() {
    changed_ = true;
    wake_event_.notify();
  }
  bool consume_change() { return changed_.exchange(false); }

  bool has_viewers(Clock::time_point now) const {
    constexpr std::chrono::seconds kRequestWindow(3);
    return viewers_ > 0 || now - Clock::time_point(Clock::duration(last_request_)) < kRequestWindow;
  }
  int viewers() const { return viewers_; }

  // Readable when somebody has come where nobody was.
  const EventFd& wake_event() const { return wake_event_; }

 private:
  std::atomic<int> viewers_{0};
  std::atomic<bool> changed_{false};
  std::atomic<Clock::rep> last_request_{Clock::rep{-1} << 40};
  EventFd wake_event_;
};

}  // namespace berth::serve
