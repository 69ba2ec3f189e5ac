// Estimates the memory and run time of the next run of a job type from its profile.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>

#include "archive/profile.h"
#include "base/quantity.h"

namespace berth {

// The expected needs of the next run.
struct NeedsEstimate {
  std::optional<Bytes> memory;                    // to reserve on each GPU; absent: unknown
  std::optional<Bytes> quantile;                  // of the peaks, without the margin
  double margin = 0;                              // as a fraction of the quantile
  std::optional<std::chrono::milliseconds> time;  // absent: unknown
};

// With fewer measured runs, the quantile is the largest peak.
constexpr std::ptrdiff_t kMinRunsForQuantile = 50;

// The memory is a high quantile of the peaks plus a margin, which shrinks as more runs agree.
// Values that the user has set take precedence.
NeedsEstimate estimate_needs(const Profile& profile);

}  // namespace berth
