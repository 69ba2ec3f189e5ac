// The step of a decision that times the earlier tickets that could claim GPUs and do not.
//
// silent_tickets.h has the times. This step finds out which tickets to time, and rings them.
#pragma once

#include "base/result.h"
#include "lease/decision_context.h"
#include "schedule/plan.h"

namespace berth {

// Call after walk_queue(). True if the queue must be walked again with a new planner: because all
// earlier tickets are needed, or because the client passes over some tickets from now on.
Result<bool> time_unclaimed_tickets(DecisionContext& context, const PlanInput& input);

}  // namespace berth
