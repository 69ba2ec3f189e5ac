// Finds the earlier tickets that could claim GPUs, times and rings them; see unclaimed_tickets.h.
#include "lease/unclaimed_tickets.h"

#include <algorithm>
#include <list>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace berth {
namespace {

using LeaseOrders = std::map<std::string, std::uint64_t>;

std::size_t queue_position(const DecisionContext& context) {
  if (!context.self.ticket) return context.queue().size() + 1;
  return static_cast<std::size_t>(context.own_place() - context.queue().begin()) + 1;
}

// Updates PendingClient::ticket_orders.
void record_ticket_orders(DecisionContext& context) {
  PendingClient& self = context.self;
  if (!self.silent_tickets.is_timing()) return self.ticket_orders.clear();
  const auto remember = [&self](const TicketName& name, uid_t owner) {
    const auto known = self.ticket_orders.try_emplace({name.id, owner}, name.order).first;
    known->second = std::min(known->second, name.order);  // of two files, the earlier
  };
  for (const EarlierTicket& earlier : context.walk.earlier_tickets)
    remember(earlier.name, earlier.owner);
  for (const TicketName& name : context.queue()) {
    if (name.owner) remember(name, *name.owner);
  }
}

// By the id of each lease: the order of the ticket that it came from, as far as it is remembered.
LeaseOrders find_lease_orders(const DecisionContext& context) {
  LeaseOrders orders;
  const auto& ticket_orders = context.self.ticket_orders;
  if (ticket_orders.empty()) return orders;
  for (const Record& lease : context.decision.host_view.leases) {
    const auto known = ticket_orders.find({lease.id, lease.uid});
    if (known != ticket_orders.end()) orders.emplace(lease.id, known->second);
  }
  return orders;
}

// A timed ticket is overtaken if it could claim GPUs, had no client behind it claimed any. Those
// clients have found it silent, and it must stay timed: otherwise it would reserve the GPUs that
// they left.
bool is_overtaken(const DecisionContext& context, const EarlierTicket& earlier,
                  const PlanInput& input, const LeaseOrders& lease_orders) {
  if (lease_orders.empty() || !context.self.silent_tickets.is_timed(earlier.name.id)) return false;
  PlanInput earlier_input{input.gpus, input.closeness, input.leases, {}, input.now, input.seed};
  const auto removed = std::erase_if(earlier_input.leases, [&](const HeldLease& lease) {
    const auto order = lease_orders.find(lease.id);
    return order != lease_orders.end() && order->second > earlier.name.order;
  });
  if (removed == 0) return false;
  QueuedTicket ticket = *earlier.ticket;
  ticket.stopped = true;
  Planner planner(earlier_input);
  const Outcome outcome = planner.decide(ticket, Planner::Explain::no);
  return outcome.wait && outcome.wait->passed_over;
}

// The earlier tickets that could claim GPUs if those before them were silent. All of them are timed
// at once, so that many silent tickets do not take longer than one.
std::vector<SilentTickets::Claimable> find_claimable(const DecisionContext& context,
                                                     const PlanInput& input, Planner& planner,
                                                     std::list<QueuedTicket>& planner_tickets) {
  const LeaseOrders lease_orders = find_lease_orders(context);
  std::vector<SilentTickets::Claimable> found;
  for (const EarlierTicket& earlier : context.walk.earlier_tickets) {
    QueuedTicket& ticket = planner_tickets.emplace_back(*earlier.ticket);
    ticket.stopped = true;
    const Outcome outcome = planner.decide(ticket, Planner::Explain::no);
    if ((outcome.wait && outcome.wait->passed_over) ||
        is_overtaken(context, earlier, input, lease_orders)) {
      found.push_back({earlier.name.id, earlier.ticket->stopped});
    } else if (!earlier.ticket->stopped) {
      // The ticket has to wait, and reserves GPUs.
      (void)planner.decide(*earlier.ticket, Planner::Explain::no);
    }
  }
  return found;
}

// Rings the tickets behind the client's own that would be granted GPUs if the timed ones were
// silent, so that they begin to time them now. Otherwise each would begin only after the one before
// it has claimed.
Result<void> ring_grantable_successors(DecisionContext& context, Planner& planner,
                                       std::list<QueuedTicket>& planner_tickets) {
  if (!context.self.ticket) return {};
  (void)planner.decide(context.walk.own_ticket, Planner::Explain::no);
  const auto& queue = context.queue();
  auto name = std::upper_bound(queue.begin(), queue.end(), *context.self.ticket);
  for (std::size_t read = 0; name != queue.end() && read < context.max_searched_tickets();
       ++name, ++read) {
    if (planner.is_exhausted()) break;
    const Client* const client = TRY(context.find_client(*name));
    if (client == nullptr) continue;
    planner_tickets.push_back(make_queued_ticket(client->record, context.is_inactive(*client)));
    const Outcome outcome = planner.decide(planner_tickets.back(), Planner::Explain::no);
    if (outcome.grant) context.transaction.ring(*client);
  }
  return {};
}

}  // namespace

Result<bool> time_unclaimed_tickets(DecisionContext& context, const PlanInput& input) {
  SilentTickets& silent_tickets = context.self.silent_tickets;
  const Outcome& outcome = context.walk.outcome;
  if (outcome.grant || outcome.impossible || !context.self.may_wait) return false;
  if (context.is_recovering) {  // no client can claim
    silent_tickets.reset_times();
    context.self.ticket_orders.clear();
    return false;
  }
  // A server's clients are rung at every release: there a ring does not show that another client
  // has waited.
  const bool rung = context.rung && !context.harbour.is_multi_host();
  if (!silent_tickets.observe(context.walk.unclaimed_ids, rung, queue_position(context),
                              context.now))
    return false;
  if (!std::exchange(context.reads_whole_queue, true)) return true;
  std::map<std::string, TicketName> names;
  for (const EarlierTicket& earlier : context.walk.earlier_tickets)
    names.emplace(earlier.name.id, earlier.name);
  silent_tickets.forget_tickets_unless([&](const std::string& id) { return names.contains(id); });
  Planner planner(input);
  std::list<QueuedTicket> planner_tickets;  // a list, since the planner keeps references to them
  auto claimable = find_claimable(context, input, planner, planner_tickets);
  // If the server is slow, claims take long. Without this the clients of a busy queue would time
  // each other without end, and their rings would make the server slower still. The price: of the
  // clients behind a silent ticket, not always the first claims first.
  if (context.harbour.is_multi_host() && !silent_tickets.has_suspect(claimable)) claimable.clear();
  const auto timing = silent_tickets.time_tickets(claimable, context.now);
  for (const std::string& id : timing.ids_to_ring) {
    const Client* const client = TRY(context.find_client(names.at(id)));
    if (client != nullptr) context.transaction.ring(*client);
  }
  if (timing.started) TRY(ring_grantable_successors(context, planner, planner_tickets));
  record_ticket_orders(context);
  context.decision.decide_again_at = silent_tickets.next_decision(context.now);
  return timing.passed_over;
}

}  // namespace berth
