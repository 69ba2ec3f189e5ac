// Estimates when the tickets of a queue start.
#pragma once

#include <optional>
#include <vector>

#include "schedule/plan.h"

namespace berth {

struct StartEstimate {
  std::optional<TimePoint> time;
  // If `time` is unknown: what still blocks the ticket when all expected ends have passed, which is
  // work without an expected end. Nothing for a ticket that was not simulated to the end.
  std::optional<Wait> last_wait{};
};

// For each ticket of `input`, the time at which it starts if each lease, and each ticket once it
// has started, ends when it is expected to, and nothing else changes. Nothing for a ticket that
// could start now, and for a ticket behind work whose end is unknown or overdue.
//
// Runs the scheduler once for each expected end, so it considers only the first tickets of a long
// queue, and no queue at all behind an unusual number of leases.
std::vector<StartEstimate> estimate_starts(PlanInput input);

}  // namespace berth
