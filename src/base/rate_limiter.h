// A limit on how often something is done that anybody can bring about: bursts are free, then there
// are pauses.
#pragma once

#include <algorithm>
#include <chrono>
#include <poll.h>

namespace berth {

class RateLimiter {
 public:
  // Pauses if there were many calls lately; ends the pause when `interrupt` (or -1) becomes
  // readable.
  void wait(int interrupt = -1) {
    constexpr std::chrono::milliseconds kInterval(50);
    constexpr int kBurst = 20;
    const auto now = Clock::now();
    // What was done so far is forgiven at the rate that is allowed.
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
