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
  void keep(int interrupt = -1) {
    constexpr std::chrono::milliseconds kEach(50);
    constexpr int kBurst = 20;
    const auto now = Clock::now();
    // What was done so far is forgiven at the rate that is allowed.
    done_until_ = std::max(done_until_, now - kEach * kBurst) + kEach;
    if (done_until_ <= now) return;
    const auto pause = std::chrono::ceil<std::chrono::milliseconds>(done_until_ - now);
    pollfd entry{interrupt, POLLIN, 0};
    ::poll(&entry, 1, static_cast<int>(pause.count()));
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point done_until_;
};

}  // namespace berth
