// Questions that several steps of a decision ask; see decision_context.h.
#include "lease/decision_context.h"

#include <algorithm>
#include <utility>

namespace berth {
namespace {

constexpr std::size_t kMaxSearchedTickets = 256;
// Fewer, since every one of them is read: a server does not report the owner of an unread ticket.
constexpr std::size_t kMaxSearchedTicketsOnServer = 16;
// A GPU that is reset is lost for some seconds.
constexpr std::chrono::seconds kImpossibleTimeout(60);

}  // namespace

bool DecisionContext::is_in_queue(const TicketName& name) const {
  return std::binary_search(queue().begin(), queue().end(), name);
}

std::vector<TicketName>::const_iterator DecisionContext::own_place() const {
  return std::lower_bound(queue().begin(), queue().end(), *self.ticket);
}

Result<Client*> DecisionContext::find_client(const TicketName& name) {
  for (OpenClient& open_client : walk.open_clients) {
    if (open_client.name == name) return &open_client.client;
  }
  last_read_client_ = TRY(transaction.read_ticket(name));
  return last_read_client_ ? &*last_read_client_ : nullptr;
}

bool DecisionContext::is_inactive(const Client& client) const {
  return transaction.is_stopped(client) || self.silent_tickets.is_passed_over(client.record.id);
}

bool DecisionContext::counts_as_later(const TicketName& name) const {
  const auto found = self.uncounted_tickets.find({name.file_number, name.id});
  return found != self.uncounted_tickets.end() &&
         (!found->second.is_impossible || now - found->second.since >= kImpossibleTimeout);
}

bool DecisionContext::is_same_user_and_namespace(const Record& record) const {
  return record.uid == self.record.uid && record.pid_namespace == self.record.pid_namespace;
}

bool DecisionContext::may_be_same_user(const TicketName& name) const {
  return harbour.is_multi_host() || name.owner == own_uid_;
}

std::size_t DecisionContext::max_searched_tickets() const {
  return harbour.is_multi_host() ? kMaxSearchedTicketsOnServer : kMaxSearchedTickets;
}

void DecisionContext::rely_on(const Record& record) {
  if (walk.relied_on_ids.insert(record.id).second) decision.relied_on_clients.push_back(record);
}

void DecisionContext::recheck_within(std::chrono::milliseconds time) {
  decision.recheck_after = std::min(decision.recheck_after.value_or(time), time);
}

}  // namespace berth
