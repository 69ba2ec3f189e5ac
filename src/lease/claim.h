// The steps of a decision that turn a grant into a lease, and the rings to the clients behind it.
#pragma once

#include "base/result.h"
#include "base/time.h"
#include "lease/decision_context.h"

namespace berth {

// In a harbour of several hosts, the server may have committed the client's last decision although
// its reply was lost. Then the client has its lease already (Decision::granted), or has to give it
// back (Decision::grant_unconfirmed).
Result<void> adopt_existing_lease(DecisionContext& context);

// Finds PendingClient::replaced_ticket in the queue. False if it is not there, or belongs to
// another user.
Result<bool> find_replaced_ticket(DecisionContext& context);

// Rings the next active ticket behind `place`, which may be the first of the queue now. Also rings
// the next active one of the deciding client's user, which relied on the deciding client: the
// tickets between them may be files of a hostile user. Inactive tickets on the way are rung, too.
Result<void> ring_successors(DecisionContext& context, const TicketName& place);

// Rings the clients that must know of the new lease, writes it, and removes the client's ticket.
// The client must be granted GPUs (QueueWalkResult::outcome).
Result<void> claim_grant(DecisionContext& context, TimePoint now);

}  // namespace berth
