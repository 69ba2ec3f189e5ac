// When to sample a job, and what to do with a sample; see sampler.h.
#include "run/sampler.h"

#include <algorithm>

namespace berth {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Frequent at first, so that a short job is measured too; then a fraction of the job's age.
constexpr milliseconds kMinInterval(20);
constexpr milliseconds kLearningInterval(250);
constexpr milliseconds kReportingInterval(2000);
constexpr int kAgeDivisor = 4;  // the interval is the age divided by this
constexpr seconds kRetryInterval(5);
constexpr seconds kTouchInterval(10);

}  // namespace

Sampler::Sampler(const Lease& lease, SamplingRate rate)
    : meter_(lease.record(), lease.host_gpus()), rate_(rate), next_sample_(begin_ + kMinInterval) {}

milliseconds Sampler::time_to_next_sample() const {
  return std::chrono::ceil<milliseconds>(next_sample_ - Clock::now());
}

void Sampler::add_sample(const Result<std::vector<GpuSample>>& samples, Lease& lease) {
  const auto now = Clock::now();
  if (samples) meter_.add_sample(*samples, now);
  load_ = samples ? meter_.load() : GpuLoad::unknown;
  next_sample_ = now + (samples ? interval(now) : kRetryInterval);
  // A lease whose load is unknown does not count as idle.
  if (load_ == GpuLoad::idle || now - last_touch_ < kTouchInterval) return;
  last_touch_ = now;
  lease.harbour().touch_lease(lease.id());
}

Sampler::Clock::duration Sampler::interval(Clock::time_point now) const {
  const Clock::duration max_interval =
      rate_ == SamplingRate::learning ? kLearningInterval : kReportingInterval;
  return std::clamp<Clock::duration>((now - begin_) / kAgeDivisor, kMinInterval, max_interval);
}

milliseconds sample_if_due(Sampler& sampler, Probe& probe, Lease& lease) {
  if (sampler.time_to_next_sample().count() <= 0)
    sampler.add_sample(probe.sample(lease.record().uuids), lease);
  return sampler.time_to_next_sample();
}

}  // namespace berth
