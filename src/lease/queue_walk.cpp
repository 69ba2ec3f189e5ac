// Reads the queue ticket by ticket and asks the scheduler; see queue_walk.h.
#include "lease/queue_walk.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <sys/types.h>
#include <type_traits>
#include <utility>
#include <vector>

namespace berth {
namespace {

// How many clients of the queue are kept open: there may be more clients than descriptors.
constexpr std::size_t kMaxOpenClients = 32;
// How many clients at the front of the queue a decision relies on: the state of each of their
// processes is read afterwards.
constexpr std::size_t kMaxReliedOnClients = 64;
// A queue of so many tickets is read up to the client's own ticket even if no GPU is left for them:
// the client then tells its user when it is expected to start.
constexpr std::size_t kShortQueue = 32;

void reset_walk(DecisionContext& context) {
  context.walk = {};
  context.decision.host_view.tickets.clear();
  context.decision.relied_on_clients.clear();
  context.decision.earlier_tickets.reset();
}

void decide_self(DecisionContext& context, Planner& planner) {
  context.walk.own_ticket = make_queued_ticket(context.self.record, false);
  context.walk.outcome = planner.decide(context.walk.own_ticket);
}

// Remembers a ticket before the client's own that does not count now; see
// PendingClient::uncounted_tickets. Not on a server: there a ticket may not count for a while
// because its host was cut off.
void note_uncounted_ticket(DecisionContext& context, const TicketName& name, bool impossible) {
  if (context.harbour.is_multi_host()) return;
  const PendingClient::UncountedTicket now{impossible, context.now};
  const auto known =
      context.self.uncounted_tickets.try_emplace({name.file_number, name.id}, now).first;
  known->second.is_impossible = known->second.is_impossible && impossible;
}

void remember_request(DecisionContext& context, const TicketName& name, const Request& request) {
  if (!context.harbour.is_multi_host())
    context.self.decided_requests.try_emplace({name.file_number, name.id}, request);
}

bool has_changed_request(const DecisionContext& context, const TicketName& name,
                         const Request& request) {
  const auto decided = context.self.decided_requests.find({name.file_number, name.id});
  return decided != context.self.decided_requests.end() && decided->second != request;
}

// A ticket must not become possible, or impossible, by its changed request: its owner could let it
// wait for the right moment.
void use_original_if_impossible(Planner& planner, Client& client) {
  std::optional<Request>& original = client.original_request;
  if (!original) return;
  if (planner.is_possible(*original) && planner.is_possible(client.record.request)) return;
  client.record.request = *std::exchange(original, std::nullopt);
}

void forget_requests_outside_queue(DecisionContext& context) {
  auto& requests = context.self.decided_requests;
  if (requests.empty()) return;
  std::remove_reference_t<decltype(requests)> kept;
  for (const TicketName& name : context.queue()) {
    if (auto known = requests.extract({name.file_number, name.id})) kept.insert(std::move(known));
  }
  requests = std::move(kept);
}

// The queue, with the tickets for which counts_as_later() is true directly behind the client's own.
std::vector<TicketName> effective_queue_order(DecisionContext& context) {
  PendingClient& self = context.self;
  if (self.uncounted_tickets.empty() || !self.ticket) return context.queue();
  std::vector<TicketName> order;
  std::vector<TicketName> later;
  std::map<std::pair<std::uint64_t, std::string>, PendingClient::UncountedTicket> kept;
  for (const TicketName& name : context.queue()) {
    if (auto known = self.uncounted_tickets.extract({name.file_number, name.id}))
      kept.insert(std::move(known));
  }
  self.uncounted_tickets = std::move(kept);  // forgets tickets that have left the queue
  for (const TicketName& name : context.queue()) {
    (name < *self.ticket && context.counts_as_later(name) ? later : order).push_back(name);
    if (name == *self.ticket) order.insert(order.end(), later.begin(), later.end());
  }
  return order;
}

// Gives a silent ticket another chance from time to time, if it could claim GPUs now. A ticket that
// cannot claim now gets none: it would reserve GPUs that it may never claim.
bool retry_silent_ticket(DecisionContext& context, const Client& client) {
  return !context.transaction.is_stopped(client) && client.record.version <= kProtocolVersion &&
         context.self.silent_tickets.retry_if_due(client.record.id, context.now);
}

void copy_earlier_tickets(DecisionContext& context) {
  std::vector<QueuedTicket>& tickets = context.decision.earlier_tickets.emplace();
  for (const EarlierTicket& earlier : context.walk.earlier_tickets)
    tickets.push_back(*earlier.ticket);
}

// Finds the tickets that the walk leaves out; see walk_queue().
class TicketFilter {
 public:
  TicketFilter(DecisionContext& context, Planner& planner) : context_(context), planner_(planner) {}

  // Called for each ticket that is not left out and that is active.
  void add_active(const Record& record) {
    if (++active_[{record.uid, record.pid_namespace}] == kFrontTickets)
      watching_users_.insert(record.uid);
  }

  bool can_leave_out(const TicketName& name, bool self_reached) {
    if (!self_reached && context_.proves_earlier_tickets) return false;
    // The answer for one ticket holds for all later ones that ask for the same. If their owner
    // forged the hash, only tickets of that owner are left out wrongly.
    const std::pair key(name.owner.value_or(0), name.request_hash);
    const bool has_hash = name.owner && name.request_hash != 0;
    if (has_hash && left_out_.contains(key)) return true;
    if (!self_reached && !(name.owner && watching_users_.contains(*name.owner))) return false;
    auto client = context_.transaction.read_unproved_ticket(name);
    if (!client) return false;
    const Record& record = client->record;
    if (record.version > kProtocolVersion) return false;
    if (!self_reached && active_[{record.uid, record.pid_namespace}] < kFrontTickets) return false;
    use_original_if_impossible(planner_, *client);
    if (!planner_.can_leave_out(make_queued_ticket(record, false))) return false;
    if (has_hash) left_out_.insert(key);
    return true;
  }

 private:
  DecisionContext& context_;
  Planner& planner_;
  std::map<std::pair<uid_t, std::uint64_t>, std::size_t> active_;  // by user and PID namespace
  std::set<uid_t> watching_users_;                                 // have two in some namespace
  std::set<std::pair<uid_t, std::uint64_t>> left_out_;             // by user and request_hash
};

}  // namespace

void withhold_grant(QueueWalkResult& walk) {
  if (!walk.outcome.grant) return;
  walk.outcome.grant.reset();
  walk.outcome.wait = Wait{};
}

Result<void> walk_queue(DecisionContext& context, Planner& planner) {
  reset_walk(context);
  PendingClient& self = context.self;
  QueueWalkResult& walk = context.walk;
  Decision& decision = context.decision;
  bool self_reached = false;
  bool stopped_early = false;
  std::size_t active = 0;
  // A client without a ticket stands where a ticket that is written now would stand. So a ticket
  // with a number from the future does not stand before it.
  std::optional<std::uint64_t> arrival;
  TicketFilter filter(context, planner);
  forget_requests_outside_queue(context);
  if (!self.ticket && !context.replaced_ticket)
    arrival = TRY(context.transaction.next_file_number());
  const std::vector<TicketName> order = effective_queue_order(context);
  const bool reads_whole_queue = context.reads_whole_queue || order.size() <= kShortQueue;
  for (const TicketName& name : order) {
    if (arrival && !self_reached && name.order > *arrival) {
      decide_self(context, planner);
      self_reached = true;
    }
    if (self.ticket == name || context.replaced_ticket == name) {
      // A second name of the same file (a hard link) is not a second ticket.
      if (!self_reached) decide_self(context, planner);
      self_reached = true;
      continue;
    }
    stopped_early =
        (self_reached || (active >= kFrontTickets && !reads_whole_queue)) && planner.is_exhausted();
    if (stopped_early) break;
    if (filter.can_leave_out(name, self_reached)) {
      walk.left_out_earlier = walk.left_out_earlier || !self_reached;
      continue;
    }
    std::optional<Client> client = TRY(context.transaction.read_ticket(name));
    if (!client) {
      if (!self_reached) note_uncounted_ticket(context, name, false);
      continue;
    }
    use_original_if_impossible(planner, *client);
    if (!self_reached && has_changed_request(context, name, client->record.request)) {
      note_uncounted_ticket(context, name, false);
      continue;
    }
    // A ticket of a later version may ask for something that this version does not understand. It
    // is granted nothing here; its own client decides for it.
    bool inactive = context.is_inactive(*client);
    bool stopped = inactive || client->record.version > kProtocolVersion;
    QueuedTicket& ticket =
        walk.planner_tickets.emplace_back(make_queued_ticket(client->record, stopped));
    const bool needs_blockers =
        !self_reached && walk.gpus_waited_for.size() < decision.host_view.gpus.size();
    const auto explain = needs_blockers ? Planner::Explain::yes : Planner::Explain::no;
    Outcome outcome = planner.decide(ticket, explain);
    bool could_claim = outcome.wait && outcome.wait->passed_over;
    if (could_claim && stopped && retry_silent_ticket(context, *client)) {
      inactive = stopped = could_claim = ticket.stopped = false;
      outcome = planner.decide(ticket, explain);
    }
    if (outcome.wait && needs_blockers) {
      for (const Blocker& blocker : outcome.wait->blockers) {
        walk.gpus_waited_for.insert(blocker.uuid);
      }
    }
    if (outcome.impossible) {
      walk.impossible_tickets.insert(name);
      if (!self_reached) {
        note_uncounted_ticket(context, name, true);
        remember_request(context, name, client->record.request);
      }
      continue;
    }
    // The ticket counts. If it did not before, that was only for a short time.
    if (!self_reached) self.uncounted_tickets.erase({name.file_number, name.id});
    if (!stopped) ++active;
    const Record& record = client->record;
    if (!inactive) filter.add_active(record);
    if (!self_reached) {
      walk.earlier_tickets.push_back({name, &ticket, record.uid, record.pid_namespace, inactive});
    }
    if (!inactive && decision.relied_on_clients.size() < kMaxReliedOnClients)
      context.rely_on(record);
    // The first ticket that has to wait keeps GPUs from the tickets behind it until it ends.
    if (outcome.wait && !stopped && !walk.reserving_ticket) walk.reserving_ticket = name;
    decision.host_view.tickets.push_back(record);
    // A ticket that could claim but is passed over is rung as well: its client reads the ring when
    // it continues.
    if ((outcome.grant || could_claim) && !context.is_recovering) context.transaction.ring(*client);
    if (outcome.grant && !self_reached) {
      walk.unclaimed_ids.insert(record.id);
      remember_request(context, name, record.request);
    }
    if (walk.open_clients.size() < kMaxOpenClients)
      walk.open_clients.push_back({name, std::move(*client)});
  }
  const bool missed_earlier = stopped_early && !self_reached;
  if (!self_reached) decide_self(context, planner);
  if (missed_earlier) withhold_grant(walk);  // the tickets that were not read come first
  if (walk.outcome.wait && order.size() <= kShortQueue && !walk.left_out_earlier)
    copy_earlier_tickets(context);
  return {};
}

}  // namespace berth
