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
//
// Leaves out tickets on which nothing depends, since to prove that a client lives costs twice as
// much as to read its request: those that have to wait, live or not, and that keep no GPU from
// later tickets (Planner::can_leave_out()). Behind the client's own ticket it leaves out all of
// them; before that only if DecisionContext::proves_earlier_tickets is not set, and only behind the
// first two active ones of their user and PID namespace, which must know of a new lease.
Result<void> walk_queue(DecisionContext& context, Planner& planner);

// Turns a grant of the deciding client into a wait.
void withhold_grant(QueueWalkResult& walk);

}  // namespace berth
