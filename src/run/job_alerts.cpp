// When a notification about the end of a job, or about idle GPUs, is due; see job_alerts.h.
#include "run/job_alerts.h"

#include <algorithm>
#include <utility>

namespace berth {

void EndAlert::set_end(std::optional<TimePoint> end, TimePoint now) {
  if (end == end_) return;
  if (end_) known_ = now;
  end_ = end;
  due_ = end;
  if (end) *due_ -= std::min(before_, std::max((*end - known_) / 2, std::chrono::nanoseconds(0)));
}

std::optional<std::chrono::nanoseconds> IdleAlert::observe(GpuLoad load, Clock::time_point now) {
  if (load == GpuLoad::in_use) is_reported_ = false;
  if (load != GpuLoad::idle) {
    idle_since_.reset();
    return std::nullopt;
  }
  if (!idle_since_) idle_since_ = now;
  const std::chrono::nanoseconds idle = now - *idle_since_;
  if (idle < limit_ || std::exchange(is_reported_, true)) return std::nullopt;
  return idle;
}

}  // namespace berth
