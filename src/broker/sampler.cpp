// When to look, and whom to tell; see sampler.h.
#include "broker/sampler.h"

#include <algorithm>

namespace berth {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Closely at first, since a job that is short must be seen as well.
constexpr milliseconds kFirst(20);
constexpr milliseconds kLearning(250);
constexpr milliseconds kReporting(2000);
constexpr int kPart = 4;  // of its age so far
constexpr seconds kNoAnswer(5);
constexpr seconds kTell(10);

}  // namespace

Sampler::Sampler(Probe& probe, Lease& lease, Attention attention)
    : probe_(probe),
      lease_(lease),
      meter_(lease.record(), lease.host_gpus()),
      attention_(attention),
      next_(begin_ + kFirst) {}

milliseconds Sampler::sample() {
  auto now = Clock::now();
  if (now >= next_) {
    const auto uses = probe_.use(lease_.record().uuids);
    now = Clock::now();
    if (uses) meter_.take(*uses, now);
    // Whose load nobody knows is not idle.
    if (!uses || !meter_.idle()) tell(now);
    next_ = now + (uses ? interval(now) : kNoAnswer);
  }
  return std::chrono::ceil<milliseconds>(next_ - now);
}

Sampler::Clock::duration Sampler::interval(Clock::time_point now) const {
  const Clock::duration most = attention_ == Attention::learning ? kLearning : kReporting;
  return std::clamp<Clock::duration>((now - begin_) / kPart, kFirst, most);
}

void Sampler::tell(Clock::time_point now) {
  if (now - told_ < kTell) return;
  told_ = now;
  lease_.harbour().touch_lease(lease_.id());
}

}  // namespace berth
