// Writes a client's own files; see own_record.h.
#include "lease/own_record.h"

#include <utility>

#include "harbour/bell.h"
#include "lease/claim.h"
#include "lease/decision_context.h"

namespace berth {
namespace {

// Writes a new ticket, the last of the queue, for a request that asks for more than the old one. If
// the user has too many tickets, the old one stays: it makes the decisions of others less precise.
Result<void> replace_own_ticket(DecisionContext& context) {
  PendingClient& self = context.self;
  const TicketName old = *self.ticket;
  TRY(ring_successors(context, old));
  auto written = write_own_ticket(context, TRY(context.transaction.next_file_number()));
  if (!written && written.error().kind == ErrorKind::not_granted) return {};
  if (!written) return written;
  context.transaction.remove_ticket(old);
  // These say which tickets stand behind the old one.
  self.uncounted_tickets.clear();
  self.decided_requests.clear();
  self.silent_tickets.reset_times();
  self.ticket_orders.clear();
  context.decision.lost_place = true;
  return {};
}

}  // namespace

Result<void> write_own_record(Harbour& harbour, Transaction& transaction, Record& record,
                              PrivateFd& bell, std::optional<TicketName>& ticket,
                              const std::function<Result<void>()>& write) {
  constexpr int kMaxAttempts = 16;
  for (int i = 0;; ++i) {
    auto written = write();
    if (written || !transaction.has_name_conflict() || i == kMaxAttempts) return written;
    Harbour::OwnBell other = TRY(harbour.make_bell());
    // Not remove_client(): that may wait for Redis, and the lock is held.
    harbour.remove_client_files(record.id, ticket);
    transaction.remove_old_id(record.id);
    // The user, or a job that waits for this one (--after), may know the id of the ticket. Another
    // user has taken it: that must not look like the end of the job.
    if (ticket && record.job_id.empty()) record.job_id = record.id;
    ticket.reset();
    record.id = std::move(other.id);
    bell = std::move(other.fd);
  }
}

Result<void> write_own_ticket(DecisionContext& context, std::uint64_t file_number) {
  PendingClient& self = context.self;
  Transaction& transaction = context.transaction;
  const bool is_new =
      !self.ticket || self.ticket->file_number != file_number || !context.is_in_queue(*self.ticket);
  TRY(write_own_record(context.harbour, transaction, self.record, self.bell, self.ticket,
                       [&] { return transaction.write_ticket(self.record, file_number); }));
  self.ticket = transaction.current_ticket_name({file_number, self.record.id, file_number});
  if (is_new) self.ticket_request = self.record.request;
  return {};
}

Result<void> restore_own_files(DecisionContext& context) {
  PendingClient& self = context.self;
  const bool has_bell = context.harbour.has_bell(self.record.id, self.bell.get());
  if (!has_bell) {
    std::optional<UniqueFd> bell = TRY(make_bell(context.harbour.directory(), self.record.id));
    if (!bell) return fail(ErrorKind::io, "this ticket's bell was replaced; try again");
    self.bell = std::move(*bell);
    self.record.directory_id = context.harbour.directory_id();
  }
  const bool changed = std::exchange(self.request_changed, false);
  if (!self.ticket) return {};
  self.ticket = context.transaction.current_ticket_name(*self.ticket);
  const bool is_queued = context.is_in_queue(*self.ticket);
  if (has_bell && is_queued && !changed) return {};
  const bool keeps_place =
      context.harbour.is_multi_host() || asks_for_no_more(self.record.request, self.ticket_request);
  if (is_queued && !keeps_place) return replace_own_ticket(context);
  return write_own_ticket(context, self.ticket->file_number);
}

}  // namespace berth
