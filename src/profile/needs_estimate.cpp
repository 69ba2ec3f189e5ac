// Estimates needs from earlier runs; see needs_estimate.h.
#include "profile/needs_estimate.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace berth {
namespace {

using std::chrono::milliseconds;

// Of kMinRunsForQuantile runs this ignores the largest peak, which may be an outlier.
constexpr std::size_t kQuantilePct = 98;
constexpr double kMinMargin = 0.02;
constexpr double kFirstRunMargin = 0.10;  // after one run
constexpr double kMaxMargin = 0.25;
// Reserved even for a job that did not use its GPU so far.
constexpr Bytes kMinReserve = mib(512);
// The scheduler relies on a run time for its reservations, so a few runs must agree on it.
constexpr std::size_t kMinTimedRuns = 3;
constexpr double kTimeMargin = 1.25;
constexpr int kMaxTimeSpread = 4;  // the longest run, as a multiple of the median

std::vector<std::uint64_t> sorted_peaks(const Profile& profile) {
  std::vector<std::uint64_t> peaks;
  for (const ProfileRun& run : profile.runs) {
    if (run.peak) peaks.push_back(run.peak->count);
  }
  std::sort(peaks.begin(), peaks.end());
  return peaks;
}

void estimate_memory(const Profile& profile, NeedsEstimate& result) {
  const auto peaks = sorted_peaks(profile);
  if (peaks.empty()) return;
  const auto count = static_cast<double>(peaks.size());
  const std::size_t rank = (kQuantilePct * peaks.size() + 99) / 100;  // rounded up
  const std::uint64_t quantile = peaks[rank - 1];
  const double spread = quantile == 0
                            ? 0
                            : static_cast<double>(quantile - std::min(peaks.front(), quantile)) /
                                  static_cast<double>(quantile);
  // Peaks that have varied may vary more in the next run, but less so after many runs.
  result.margin = std::clamp(std::max(kFirstRunMargin, spread) / count, kMinMargin, kMaxMargin);
  result.quantile = Bytes{quantile};
  const auto with_margin =
      static_cast<std::uint64_t>(static_cast<double>(quantile) * (1 + result.margin));
  const std::uint64_t rounded_mib = (with_margin + mib(1).count - 1) / mib(1).count;
  result.memory = Bytes{std::max(rounded_mib * mib(1).count, kMinReserve.count)};
}

void estimate_time(const Profile& profile, NeedsEstimate& result) {
  std::vector<milliseconds> times;
  for (const ProfileRun& run : profile.runs) {
    if (!run.out_of_memory) times.push_back(run.lasted);
  }
  if (times.size() < kMinTimedRuns) return;
  std::sort(times.begin(), times.end());
  const milliseconds longest = times.back();
  if (longest > kMaxTimeSpread * times[times.size() / 2]) return;
  const double ms = static_cast<double>(longest.count()) * kTimeMargin;
  result.time = milliseconds(std::max<std::int64_t>(static_cast<std::int64_t>(ms), 1));
}

}  // namespace

NeedsEstimate estimate_needs(const Profile& profile) {
  NeedsEstimate result;
  estimate_memory(profile, result);
  estimate_time(profile, result);
  if (profile.set_memory) result.memory = profile.set_memory;
  if (profile.set_time) result.time = profile.set_time;
  return result;
}

}  // namespace berth
