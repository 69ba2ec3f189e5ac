// What the steps of one decision share. Internal to decision.cpp, which runs the steps, and to the
// files of the steps: queue_walk.h, unclaimed_tickets.h, claim.h and watched_bells.h.
//
// The states of another client's ticket, as the deciding client sees them. The first row that
// applies decides what happens to the ticket. harbour/transaction.h defines which tickets count.
//
//   state               decided by                           what follows
//   does not count      Transaction::read_ticket()           ignored; noted in uncounted_tickets
//   impossible          Planner::decide(): impossible        ignored; noted in uncounted_tickets
//   of a later version  walk_queue(), by Record::version     gets no grant, reserves nothing
//   stopped             Transaction::is_stopped()            the same; rung if it could claim GPUs
//   silent              SilentTickets::is_passed_over()      the same; gets another chance later
//   granted, unclaimed  Planner::decide(): grant             keeps its GPUs and is rung; if it does
//                                                            not claim: unclaimed_tickets.h
//   reserving           Planner::decide(): wait, the first   keeps GPUs from the tickets behind it
//   waiting             Planner::decide(): wait              nothing
//
// Two more names: a ticket that is stopped or silent is inactive (DecisionContext::is_inactive()),
// and a ticket that did not count when the deciding client came stands behind that client's own
// although its order is lower (DecisionContext::counts_as_later()).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <set>
#include <string>
#include <sys/types.h>
#include <unistd.h>
#include <vector>

#include "base/result.h"
#include "harbour/harbour.h"
#include "lease/decision.h"
#include "schedule/plan.h"

namespace berth {

// No lease is granted by an older snapshot: a stranger may have started on a GPU while the client
// waited for the lock.
constexpr std::chrono::seconds kMaxSnapshotAge(2);

// The first two active tickets of the queue, and the first two of each user, have special duties.
constexpr std::size_t kFrontTickets = 2;

// The client of a ticket that the walk over the queue has read, with its bell open.
struct OpenClient {
  TicketName name;
  Client client;
};

// A ticket before the deciding client's own that this host could grant some day.
struct EarlierTicket {
  TicketName name;
  const QueuedTicket* ticket;  // one of QueueWalkResult::planner_tickets
  uid_t owner;
  std::uint64_t pid_namespace;
  bool inactive;  // see DecisionContext::is_inactive()
};

// What walk_queue() has found.
struct QueueWalkResult {
  Outcome outcome;                          // of the deciding client
  QueuedTicket own_ticket;                  // the request of the deciding client
  std::list<QueuedTicket> planner_tickets;  // a list, since the planner keeps references to them
  // Without those that were left out. Has the first two active ones of each user and PID namespace
  // if the deciding client is granted GPUs.
  std::vector<EarlierTicket> earlier_tickets;
  bool left_out_earlier = false;               // a ticket before the client's own was left out
  std::set<TicketName> impossible_tickets;     // ask for more than this host has
  std::optional<TicketName> reserving_ticket;  // the first that waits: it keeps GPUs for itself
  std::set<std::string> gpus_waited_for;       // UUIDs of GPUs that an earlier ticket waits for
  std::set<std::string> unclaimed_ids;         // of earlier tickets that are granted GPUs now
  std::vector<OpenClient> open_clients;        // the first ones of the queue, a bounded number
  std::set<std::string> relied_on_ids;         // ids of Decision::relied_on_clients
};

// The deciding client, the harbour during one transaction, and the decision so far. The references
// must outlive the context.
class DecisionContext {
 public:
  DecisionContext(Harbour& decision_harbour, PendingClient& client, Transaction& open_transaction)
      : harbour(decision_harbour), self(client), transaction(open_transaction) {}

  const std::vector<TicketName>& queue() const { return transaction.queue(); }
  bool is_in_queue(const TicketName& name) const;
  // Where the client's own ticket stands in queue(). The client must have a ticket.
  std::vector<TicketName>::const_iterator own_place() const;

  // The live client of a ticket; null if the ticket does not count. Valid until the next call.
  Result<Client*> find_client(const TicketName& name);

  // Stopped, or silent for too long: in both cases the client is granted nothing for now.
  bool is_inactive(const Client& client) const;

  // A ticket that stands before the client's own by its order, but did not count when the client
  // came. A ticket that asked for too much counts again if that was so only for a short time: a GPU
  // that is reset is lost for some seconds.
  bool counts_as_later(const TicketName& name) const;

  // Only such clients watch leases on behalf of this one: clients of other users may be hostile,
  // and another PID namespace (a container) may be frozen.
  bool is_same_user_and_namespace(const Record& record) const;
  // By the owner of the ticket's file, without reading it. Always true on a server, which does not
  // report the owner of a ticket that is not read.
  bool may_be_same_user(const TicketName& name) const;
  // How many tickets a search among the neighbours of the client's ticket reads at most.
  std::size_t max_searched_tickets() const;

  // Notes that the decision takes this client to be running; see Decision::relied_on_clients.
  void rely_on(const Record& record);
  // Lets the client decide again after `time` at the latest.
  void recheck_within(std::chrono::milliseconds time);

  Harbour& harbour;
  PendingClient& self;
  Transaction& transaction;
  const SilentTickets::Clock::time_point now = SilentTickets::Clock::now();
  std::optional<TicketName> replaced_ticket{};  // the place of PendingClient::replaced_ticket
  bool rung = false;                            // the client was rung since its last decision
  bool is_recovering = false;                   // no client is granted anything yet
  bool snapshot_is_old = false;                 // the GPUs may be in use by strangers meanwhile
  bool reads_whole_queue = false;  // read all earlier tickets, even if no GPU is left for them
  // Leave out no earlier ticket (see walk_queue()). A client that waits must know which tickets
  // before its own count; a new client that is granted GPUs at once need not.
  bool proves_earlier_tickets = true;
  QueueWalkResult walk{};
  Decision decision{};

 private:
  const uid_t own_uid_ = ::geteuid();
  std::optional<Client> last_read_client_{};
};

}  // namespace berth
