// The steps of a decision that choose the bells that a waiting client polls.
//
// A waiting client must notice when a lease ends, and when a ticket before its own ends. If every
// client polled every bell, each of these events would wake the whole queue. So each client polls
// the bells of its neighbours in the queue, and only the first two tickets of each user poll the
// bells of all leases. docs/harbour-protocol.md ("Waiting") has the rules.
#pragma once

#include <vector>

#include "base/result.h"
#include "lease/decision_context.h"

namespace berth {

// Finds the nearest live ticket before the client's own, and the nearest two of the same user and
// PID namespace. Decides whether the client watches all leases, and which clients behind it are to
// watch as well. The client must have a ticket.
//
// The first two active tickets of the queue decide as soon as a lease ends. But they may be two
// tickets of a hostile user whose processes watch nothing, so a client relies only on two tickets
// of its own user and PID namespace: the first two of each user watch every lease.
Result<void> find_neighbours(DecisionContext& context);

// Call after find_neighbours(). If the client watches all leases, keeps the bells of `leases`, as
// far as they take up GPUs; of the ticket that reserves GPUs; and of the earlier tickets that are
// passed over, since they may become leases without ringing this client.
void collect_watched_bells(DecisionContext& context, std::vector<Client> leases);

}  // namespace berth
