// When to look, and whom to tell; see sampler.h.
#include "run/sampler.h"

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

Sampler::Sampler(const Lease& lease, SamplingRate attention)
    : meter_(lease.record(), lease.host_gpus()), attention_(attention), next_(begin_ + kFirst) {}

milliseconds Sampler::due() const {
  return std::chrono::ceil<milliseconds>(next_ - Clock::now());
}

void Sampler::take(const Result<std::vector<GpuUse>>& uses, Lease& lease) {
  const auto now = Clock::now();
  if (uses) meter_.take(*uses, now);
  next_ = now + (uses ? interval(now) : kNoAnswer);
  // Whose load nobody knows is not idle.
  const bool used = !uses || !meter_.idle();
  if (!used || now - told_ < kTell) return;
  told_ = now;
  lease.harbour().touch_lease(lease.id());
}

Sampler::Clock::duration Sampler::interval(Clock::time_point now) const {
  const Clock::duration most = attention_ == SamplingRate::learning ? kLearning : kReporting;
  return std::clamp<Clock::duration>((now - begin_) / kPart, kFirst, most);
}

milliseconds sample(Sampler& sampler, Probe& probe, Lease& lease) {
  if (sampler.due().count() <= 0) sampler.take(probe.use(lease.record().uuids), lease);
  return sampler.due();
}

}  // namespace berth
