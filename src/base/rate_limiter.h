// Limits the rate of work that other users can cause: bursts run at once, then there are pauses.
#pragma once

#include <algorithm>
#include <chrono>
#include <poll.h>

namespace berth {

// Allows kBurst calls at once, and one every kInterval in the long run. Not thread-safe.
class RateLimiter {
 public:
  // Call this before each unit of work. Pauses if there were too many calls lately; the pause ends
  // early when the descriptor `interrupt` becomes readable (-1: never).
  void wait(int interrupt = -1) {
    constexpr std::chrono::milliseconds kInterval(50);
    constexpr int kBurst = 20;
    const auto now = Clock::now();
    // Each call costs one interval. At most kBurst intervals of idle time are credited.
    paid_until_ = std::max(paid_until_, now - kInterval * kBurst) + kInterval;
    if (paid_until_ <= now) return;
    const auto pause = std::chrono::ceil<std::chrono::milliseconds>(paid_until_ - now);
    pollfd entry{interrupt, POLLIN, 0};
    ::poll(&entry, 1, static_cast<int>(pause.count()));
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point paid_until_;
};

}  // namespace berth
