// What clients do that makes the StatusPoller poll: open the event stream, send requests, change
// something.
#pragma once

#include <atomic>
#include <chrono>

#include "base/event_fd.h"

namespace berth::serve {

// Thread-safe.
class ViewerActivity {
 public:
  using Clock = std::chrono::steady_clock;

  // A client has opened or closed the event stream.
  void add_viewer() {
    const bool first = viewers_.fetch_add(1) == 0;
    if (first) wake_event_.notify();
  }
  void remove_viewer() { viewers_.fetch_sub(1); }

  // A client has requested the status, and may do so again: for a few seconds it is a viewer.
  void record_request(Clock::time_point now) {
    const bool had_viewers = has_viewers(now);
    last_request_ = now.time_since_epoch().count();
    if (!had_viewers) wake_event_.notify();
  }
  // A client has changed something through this server, so the next poll is due at once.
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

  // Readable when the first viewer has come, and after a change; the poller clears it.
  const EventFd& wake_event() const { return wake_event_; }

 private:
  std::atomic<int> viewers_{0};
  std::atomic<bool> changed_{false};
  std::atomic<Clock::rep> last_request_{Clock::rep{-1} << 40};
  EventFd wake_event_;
};

}  // namespace berth::serve
