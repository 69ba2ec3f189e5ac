// Rings the clients around a new lease and writes it; see claim.h.
#include "lease/claim.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "lease/own_record.h"

namespace berth {
namespace {

// The clients before this one that watch every lease do not know this one yet: the first two of
// each user (see find_neighbours()).
Result<void> ring_lease_watchers(DecisionContext& context) {
  std::map<std::pair<uid_t, std::uint64_t>, std::size_t> active_of_user;
  for (const EarlierTicket& earlier : context.walk.earlier_tickets) {
    std::size_t& active = active_of_user[{earlier.owner, earlier.pid_namespace}];
    if (active < kFrontTickets) {
      const Client* const client = TRY(context.find_client(earlier.name));
      if (client != nullptr) context.transaction.ring(*client);
    }
    if (!earlier.inactive) ++active;
  }
  return {};
}

}  // namespace

Result<void> adopt_existing_lease(DecisionContext& context) {
  PendingClient& self = context.self;
  if (!context.harbour.is_multi_host()) return {};
  std::optional<Client> held = TRY(context.transaction.read_lease(self.record.id));
  if (!held || held->record.uid != self.record.uid) return {};
  if (!context.harbour.has_lease(self.record.id)) {
    // The lease's file was removed when no reply came. A client that does not use Redis may have
    // been granted the GPUs since. So decide() gives the lease back, without the lock, and decides
    // again.
    context.decision.lost_race = context.decision.grant_unconfirmed = true;
    return {};
  }
  self.record = std::move(held->record);
  self.ticket.reset();
  context.decision.granted = true;
  return {};
}

Result<bool> find_replaced_ticket(DecisionContext& context) {
  for (const TicketName& name : context.queue()) {
    if (name.id != context.self.replaced_ticket) continue;
    const std::optional<Client> ticket = TRY(context.transaction.read_ticket(name));
    if (!ticket || ticket->record.uid != context.self.record.uid) return false;
    context.replaced_ticket = name;
    return true;
  }
  return false;
}

Result<void> ring_successors(DecisionContext& context, const TicketName& place) {
  auto& relied_on_clients = context.decision.relied_on_clients;
  relied_on_clients.clear();
  bool rung_any = false;
  std::size_t read = 0;
  const auto& queue = context.queue();
  auto name = std::upper_bound(queue.begin(), queue.end(), place);
  for (; name != queue.end() && read < context.max_searched_tickets(); ++name) {
    if (rung_any && !context.may_be_same_user(*name)) continue;
    ++read;
    const Client* const client = TRY(context.find_client(*name));
    if (client == nullptr) continue;
    const bool own = context.is_same_user_and_namespace(client->record);
    if (rung_any && !own) continue;
    context.transaction.ring(*client);
    if (context.is_inactive(*client)) continue;
    relied_on_clients.push_back(client->record);
    rung_any = true;
    if (own) break;
  }
  return {};
}

Result<void> claim_grant(DecisionContext& context, TimePoint now) {
  PendingClient& self = context.self;
  Transaction& transaction = context.transaction;
  TRY(ring_lease_watchers(context));
  if (const auto& place = self.ticket ? self.ticket : context.replaced_ticket) {
    TRY(ring_successors(context, *place));
  }
  if (context.replaced_ticket) transaction.set_ticket_to_replace(*context.replaced_ticket);
  const auto requested_memory = self.record.request.memory;
  if (self.lease_memory) self.record.request.memory = self.lease_memory;
  self.record.uuids = context.walk.outcome.grant->uuids;
  self.record.granted = now;
  self.record.epoch = transaction.next_epoch();
  auto written = write_own_record(context.harbour, transaction, self.record, self.bell, self.ticket,
                                  [&] { return transaction.write_lease(self.record); });
  if (!written) {
    self.record.uuids.clear();
    self.record.request.memory = requested_memory;
    return written;
  }
  if (self.ticket) transaction.remove_ticket(*self.ticket);
  self.ticket.reset();
  context.decision.granted = true;
  return {};
}

}  // namespace berth
