// Chooses the bells that a waiting client polls; see watched_bells.h.
#include "lease/watched_bells.h"

#include <algorithm>
#include <fcntl.h>
#include <set>
#include <string>
#include <utility>

namespace berth {
namespace {

// How soon the client decides again if it cannot watch all tickets that it passes over: one of them
// may become a lease.
constexpr std::chrono::seconds kInactiveTicketsRecheckInterval(10);

// A second descriptor of the client's bell; empty if its bell is not open, or no descriptor is
// left.
UniqueFd duplicate_bell(const Client& client) {
  return UniqueFd(client.bell ? ::fcntl(client.bell.get(), F_DUPFD_CLOEXEC, 0) : -1);
}

// Without a bell, only another decision notices the end of a lease or ticket.
void recheck_unwatched(DecisionContext& context, const Client& client) {
  if (client.expires_in) {
    context.recheck_within(*client.expires_in);
  } else {
    context.decision.has_unwatched_leases = true;
  }
}

void add_ticket_bell(DecisionContext& context, const Client& client, std::vector<UniqueFd>& bells) {
  if (UniqueFd bell = duplicate_bell(client)) {
    bells.push_back(std::move(bell));
  } else {
    recheck_unwatched(context, client);
  }
}

// The first ticket of a user rings the next one a little later, which then watches as well. The
// first ticket of the queue also rings the next one of any user. (Decision::successor_bells)
Result<void> find_second_watcher(DecisionContext& context, bool first_of_queue) {
  bool found = !first_of_queue;  // the next active ticket of any user
  std::size_t read = 0;
  const auto& queue = context.queue();
  auto name = std::upper_bound(queue.begin(), queue.end(), *context.self.ticket);
  for (; name != queue.end() && read < context.max_searched_tickets(); ++name) {
    if (found && !context.may_be_same_user(*name)) continue;
    ++read;
    const Client* const client = TRY(context.find_client(*name));
    if (client == nullptr || context.is_inactive(*client)) continue;
    const bool own = context.is_same_user_and_namespace(client->record);
    if (found && !own) continue;
    found = true;
    context.rely_on(client->record);
    if (UniqueFd bell = duplicate_bell(*client))
      context.decision.successor_bells.push_back(std::move(bell));
    if (own) break;
  }
  return {};
}

}  // namespace

Result<void> find_neighbours(DecisionContext& context) {
  Decision& decision = context.decision;
  std::size_t active_before = 0;
  std::size_t own_active = 0;
  std::size_t own_before = 0;
  std::size_t read = 0;
  for (auto name = context.own_place();
       name != context.queue().begin() && read < context.max_searched_tickets();) {
    --name;
    if (context.walk.impossible_tickets.contains(*name) || context.counts_as_later(*name)) continue;
    const bool accepts_any_user = !decision.predecessor || active_before < kFrontTickets;
    if (!accepts_any_user && !context.may_be_same_user(*name)) continue;
    ++read;
    const Client* const client = TRY(context.find_client(*name));
    if (client == nullptr) continue;
    const Record& record = client->record;
    const bool own = context.is_same_user_and_namespace(record);
    if (!context.is_inactive(*client)) {
      ++active_before;
      if (own) ++own_active;
      context.rely_on(record);
    }
    if (own) ++own_before;
    if (!decision.predecessor || (own && own_before <= kFrontTickets)) {
      add_ticket_bell(context, *client, decision.neighbour_bells);
    }
    if (!decision.predecessor) {
      decision.predecessor = *name;
      // A copy: the client may be one of `open_clients`, whose bell is needed later.
      decision.predecessor_client =
          Client{record, duplicate_bell(*client), client->unanswered, client->expires_in};
    }
    if (own_active >= kFrontTickets) break;
  }
  decision.is_in_front = active_before < kFrontTickets;
  decision.watches_all_leases = decision.is_in_front || own_active < kFrontTickets;
  if (own_active > 0) return {};
  return find_second_watcher(context, active_before == 0);
}

void collect_watched_bells(DecisionContext& context, std::vector<Client> leases) {
  Decision& decision = context.decision;
  if (!decision.watches_all_leases) return;
  std::set<TicketName> passed_over;
  for (const EarlierTicket& earlier : context.walk.earlier_tickets) {
    if (earlier.inactive) passed_over.insert(earlier.name);
  }
  for (const OpenClient& open_client : context.walk.open_clients) {
    const bool is_inactive_ticket = passed_over.erase(open_client.name) > 0;
    if (open_client.name == context.walk.reserving_ticket || is_inactive_ticket)
      add_ticket_bell(context, open_client.client, decision.watched_bells);
  }
  if (!passed_over.empty()) context.recheck_within(kInactiveTicketsRecheckInterval);
  std::set<std::string> counted;
  for (const Record& lease : decision.host_view.leases) counted.insert(lease.id);
  for (Client& lease : leases) {
    if (!counted.contains(lease.record.id)) continue;
    if (lease.bell) {
      decision.watched_bells.push_back(std::move(lease.bell));
    } else {
      recheck_unwatched(context, lease);
    }
  }
}

}  // namespace berth
