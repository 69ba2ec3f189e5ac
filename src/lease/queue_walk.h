// The step of a decision that reads the queue from its front and asks the scheduler for each
// ticket.
#pragma once

#include "base/result.h"
#include "lease/decision_context.h"
#include "schedule/plan.h"

namespace berth {

// Fills in `context.walk`, and the parts of `context.decision` that follow from it. Rings the
// tickets that are granted GPUs. Stops when no GPU is left to grant, so it is short while all GPUs
// are in use, however long the queue is. `planner` must be new; afterwards it keeps references into
// `context.walk`.
Result<void> walk_queue(DecisionContext& context, Planner& planner);

// Turns a grant of the deciding client into a wait.
void withhold_grant(QueueWalkResult& walk);

}  // namespace berth
