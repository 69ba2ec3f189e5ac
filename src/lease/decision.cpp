// Runs the steps of one decision under the harbour's lock; see decision.h.
//
// The steps have their own files: queue_walk.h reads the queue and asks the scheduler,
// unclaimed_tickets.h times tickets that do not claim, claim.h writes the lease, and
// watched_bells.h chooses the bells that a waiting client polls.
#include "lease/decision.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "harbour/bell.h"
#include "lease/claim.h"
#include "lease/decision_context.h"
#include "lease/own_record.h"
#include "lease/queue_walk.h"
#include "lease/unclaimed_tickets.h"
#include "lease/watched_bells.h"

namespace berth {
namespace {

using Clock = SilentTickets::Clock;

// Sets Decision::host_view from the leases, the drains and the snapshot. Returns the leases.
Result<std::vector<Client>> read_host_view(DecisionContext& context, const Snapshot& snapshot) {
  std::vector<Client> leases = TRY(context.transaction.read_leases());
  const std::vector<Drain> drains = TRY(context.transaction.read_drains());
  std::vector<Record> records;
  records.reserve(leases.size());
  for (const Client& lease : leases) records.push_back(lease.record);
  context.decision.host_view = make_host_view(snapshot, records, drains);
  return leases;
}

// Whether an old snapshot decides the outcome. A wait may rest on the leases and tickets alone,
// which were read under the lock; and a client that may wait decides again when the GPUs change.
bool needs_new_snapshot(const DecisionContext& context) {
  const Outcome& outcome = context.walk.outcome;
  if (outcome.grant) return true;
  if (context.self.may_wait || !outcome.wait || !outcome.wait->profiled_by.empty()) return false;
  const auto& blockers = outcome.wait->blockers;
  const auto by_driver = std::count_if(blockers.begin(), blockers.end(), [](const Blocker& one) {
    return one.reason != BlockReason::leased && one.reason != BlockReason::reserved;
  });
  return outcome.wait->available + static_cast<std::size_t>(by_driver) >=
         context.self.record.request.count;
}

Result<void> write_missing_ticket(DecisionContext& context) {
  if (context.self.ticket || !context.self.may_wait) return {};
  return write_own_ticket(context, TRY(context.transaction.next_file_number()));
}

// Writes the client's ticket if it has none yet, and finds out what must wake it.
Result<void> prepare_wait(DecisionContext& context, std::vector<Client> leases) {
  PendingClient& self = context.self;
  Decision& decision = context.decision;
  decision.wait = std::move(*context.walk.outcome.wait);
  for (const Blocker& blocker : decision.wait.blockers) {
    if (!context.walk.gpus_waited_for.contains(blocker.uuid))
      decision.watched_gpus.insert(blocker.uuid);
  }
  TRY(write_missing_ticket(context));
  decision.queue_length = context.queue().size();
  if (!self.ticket) return {};
  const auto own_place = context.own_place();
  const auto earlier_count = static_cast<std::size_t>(own_place - context.queue().begin());
  const auto uncounted_count = static_cast<std::size_t>(
      std::count_if(context.queue().begin(), own_place, [&self](const TicketName& name) {
        return self.uncounted_tickets.contains({name.file_number, name.id});
      }));
  decision.queue_position = earlier_count - uncounted_count + 1;
  decision.queue_length -= uncounted_count;
  TRY(find_neighbours(context));
  collect_watched_bells(context, std::move(leases));
  return {};
}

// decide() in one transaction. Decision::lost_race: the transaction was not committed.
Result<Decision> decide_once(Harbour& harbour, PendingClient& self, Transaction& transaction,
                             const Snapshot& snapshot, bool snapshot_is_old,
                             const Topology& topology) {
  DecisionContext context(harbour, self, transaction);
  context.snapshot_is_old = snapshot_is_old;
  Decision& decision = context.decision;
  const std::optional<TicketName> initial_ticket = self.ticket;
  const std::optional<Bytes> requested_memory = self.record.request.memory;
  // From here on the harbour is read, so the decision covers all rings so far.
  context.rung = clear_rings(self.bell.get()) || std::exchange(self.was_rung, false);
  decision.cancelled = self.ticket && transaction.is_ended(self.record.id, self.ticket);
  if (decision.cancelled) return std::move(decision);
  TRY(adopt_existing_lease(context));
  if (decision.granted || decision.lost_race) return std::move(decision);
  if (!self.replaced_ticket.empty()) {
    decision.cancelled = !TRY(find_replaced_ticket(context));
    if (decision.cancelled) return std::move(decision);
  }
  TRY(restore_own_files(context));
  std::vector<Client> leases = TRY(read_host_view(context, snapshot));
  const TimePoint now = std::chrono::system_clock::now();
  const PlanInput input = make_plan_input(decision.host_view, topology, now);
  const auto recovery_time_left = transaction.recovery_time_left();
  context.is_recovering = recovery_time_left.count() > 0;
  context.proves_earlier_tickets = self.ticket || context.replaced_ticket;
  for (bool walk_again = true; walk_again;) {
    Planner planner(input);
    TRY(walk_queue(context, planner));
    const bool will_wait =
        context.walk.outcome.wait || (context.snapshot_is_old && needs_new_snapshot(context));
    if (context.walk.left_out_earlier && will_wait && self.may_wait) {
      context.proves_earlier_tickets = true;
      continue;
    }
    walk_again = TRY(time_unclaimed_tickets(context, input));
  }
  decision.has_unclaimed_grant = !context.walk.unclaimed_ids.empty();
  if (context.is_recovering) {
    withhold_grant(context.walk);
    decision.recovery_time_left = recovery_time_left;
    context.recheck_within(recovery_time_left);
  }
  if (context.snapshot_is_old && needs_new_snapshot(context)) {
    decision.stale = true;
    self.was_rung = context.rung;
    TRY(write_missing_ticket(context));
  } else if (context.walk.outcome.impossible) {
    decision.impossible = context.walk.outcome.impossible;
  } else if (context.walk.outcome.grant) {
    TRY(claim_grant(context, now));
  } else {
    TRY(prepare_wait(context, std::move(leases)));
  }
  transaction.remove_leftovers();
  const auto committed = transaction.commit();
  if (!committed || !*committed) {
    self.ticket = initial_ticket;
    self.record.uuids.clear();
    self.record.request.memory = requested_memory;
    self.request_changed = true;  // the ticket may say anything by now: write it again
  }
  if (!committed) return tl::make_unexpected(committed.error());
  if (self.ticket) self.ticket = transaction.current_ticket_name(*self.ticket);
  decision.lost_race = !*committed;
  decision.dead_leases = transaction.removed_leases();
  return std::move(decision);
}

// The client that was to notice the new lease, and to wake the queue behind it, is stopped. Rings
// the first tickets that are not stopped instead.
void ring_past_stopped(Harbour& harbour, const StoppedProcesses& stopped) {
  auto transaction = harbour.begin(LockMode::shared, {});
  if (!transaction) return;
  (*transaction)->set_stopped_processes(stopped);
  (void)(*transaction)->ring_front();
  (void)(*transaction)->commit();
}

}  // namespace

Result<Decision> decide(Harbour& harbour, PendingClient& self, const TimedSnapshot& snapshot,
                        const Topology& topology, const LockOptions& lock_options) {
  // After a long wait for the lock, unread bells do not show that their clients are stopped: those
  // clients waited for the lock as well.
  constexpr std::chrono::milliseconds kLongLockWait(500);
  constexpr std::chrono::seconds kBellsUnreliableFor(3);
  constexpr int kMaxRepeats = 3;
  std::vector<Record> dead_leases;  // of all transactions, since each removes the files it reports
  for (int repeats = 0;;) {
    self.stopped_processes.refresh();
    const auto before_lock = Clock::now();
    std::unique_ptr<Transaction> transaction =
        TRY(harbour.begin(LockMode::exclusive, lock_options, self.record.id));
    const auto locked = Clock::now();
    // While another process held the lock, no client could claim, or decide and read its bell.
    self.silent_tickets.exclude_time(locked - before_lock);
    if (!harbour.is_multi_host() && locked - before_lock > kLongLockWait)
      self.last_long_lock_wait = locked;
    transaction->set_stopped_processes(self.stopped_processes);
    if (locked - self.last_long_lock_wait < kBellsUnreliableFor) transaction->ignore_unread_bells();
    const auto ticket = self.ticket;
    auto decision = decide_once(harbour, self, *transaction, snapshot.snapshot,
                                locked - snapshot.age_counts_from > kMaxSnapshotAge, topology);
    const bool needs_more_tickets = transaction->needs_more_tickets();
    transaction.reset();
    // Nothing was decided, because a ticket was not read before the lock was taken. The next
    // transaction reads more of the queue.
    if (!decision && needs_more_tickets) {
      self.ticket = ticket;
      self.request_changed = self.was_rung = true;
      continue;
    }
    if (!decision) return decision;
    std::move(decision->dead_leases.begin(), decision->dead_leases.end(),
              std::back_inserter(dead_leases));
    decision->dead_leases = dead_leases;
    if (decision->lost_race) {
      if (decision->grant_unconfirmed) harbour.store()->release(self.record.id);
      continue;
    }
    // Reads /proc, so the lock is not held any more. The decision is made again if it relies on a
    // client that is stopped.
    if (!self.stopped_processes.read(decision->relied_on_clients)) return decision;
    if (decision->granted) {
      ring_past_stopped(harbour, self.stopped_processes);
      return decision;
    }
    if (decision->cancelled || decision->impossible || decision->stale) return decision;
    if (repeats++ == kMaxRepeats) return decision;
  }
}

Result<Decision> check_for_unclaimed_grants(Harbour& harbour, PendingClient& self,
                                            const Snapshot& snapshot, const Topology& topology,
                                            const LockOptions& lock_options) {
  const std::unique_ptr<Transaction> transaction =
      TRY(harbour.begin(LockMode::shared, lock_options, self.record.id));
  transaction->set_stopped_processes(self.stopped_processes);
  DecisionContext context(harbour, self, *transaction);
  Decision& decision = context.decision;
  if (self.ticket) self.ticket = transaction->current_ticket_name(*self.ticket);
  std::vector<Client> leases = TRY(read_host_view(context, snapshot));
  const PlanInput input =
      make_plan_input(decision.host_view, topology, std::chrono::system_clock::now());
  Planner planner(input);
  TRY(walk_queue(context, planner));
  const bool is_queued = self.ticket && context.is_in_queue(*self.ticket);
  decision.has_unclaimed_grant =
      !context.walk.unclaimed_ids.empty() || !context.walk.outcome.wait || !is_queued;
  if (decision.has_unclaimed_grant) return std::move(decision);
  TRY(find_neighbours(context));
  collect_watched_bells(context, std::move(leases));
  return std::move(decision);
}

}  // namespace berth
