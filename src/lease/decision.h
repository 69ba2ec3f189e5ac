// One decision of a client that wants GPUs: it reads the harbour, asks the scheduler, claims what
// it is granted, and rings the clients that are next.
//
// A client decides when it arrives, when it is rung, and when it notices that another client has
// ended. docs/harbour-protocol.md ("The decision") has the rules.
//
// No wake-up is lost, because a client that is granted GPUs rings the client behind it before it
// commits: the rung client waits for the lock, and decides for itself even if the ringing client is
// killed half-way.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "harbour/harbour.h"
#include "lease/silent_tickets.h"
#include "schedule/plan.h"
#include "status/host_view.h"

namespace berth {

// A client without a lease, and what it remembers from one decision to the next.
struct PendingClient {
  Record record;
  PrivateFd bell;
  std::optional<TicketName> ticket;  // once it is written
  // The id of the multi-host ticket that waits here for this client; see
  // cluster/remote/multi_host_ticket.h.
  std::string replaced_ticket;
  Request ticket_request{};  // the request that `ticket` was written with
  // What the lease reserves on each GPU, if the request asks for less because the client's process
  // uses a part of it already. That part is counted while the request waits; later, it belongs to
  // the lease.
  std::optional<Bytes> lease_memory{};
  bool may_wait = true;          // false: it writes no ticket if it is not granted at once
  bool request_changed = false;  // `record` differs from the ticket that was written
  bool was_rung = false;         // since the last decision; the ring is already read from the bell
  std::chrono::steady_clock::time_point last_long_lock_wait{};  // when that wait ended
  StoppedProcesses stopped_processes{};  // of the waiting clients whose state it has read
  SilentTickets silent_tickets{};
  // While tickets are timed: the order of each ticket in the queue, by its id and owner. A lease of
  // the same id and owner has overtaken the tickets of a lower order that still wait.
  std::map<std::pair<std::string, uid_t>, std::uint64_t> ticket_orders{};
  // Tickets that stood before this one while they did not count, or while they asked for more than
  // this host has. If such a ticket counts later, this client takes it to stand behind its own:
  // otherwise a user could prepare tickets early. The key is the file_number and the id: an id
  // alone may also be in the name of another user's file.
  struct UncountedTicket {
    bool is_impossible = false;
    std::chrono::steady_clock::time_point since{};
  };
  std::map<std::pair<std::uint64_t, std::string>, UncountedTicket> uncounted_tickets{};
  // The requests of earlier tickets that were granted or impossible when this client decided, by
  // the same key. If such a ticket has another request later, this client takes it to stand behind
  // its own: otherwise two tickets that are granted by turns would keep GPUs unclaimed for ever.
  std::map<std::pair<std::uint64_t, std::string>, Request> decided_requests{};
};

// A snapshot, and the time from which its age counts. A new snapshot may take its place while
// decide() waits for the lock (LockOptions::while_waiting).
struct TimedSnapshot {
  Snapshot snapshot;
  std::chrono::steady_clock::time_point age_counts_from{};
};

// The client waits if it is not granted, cancelled, stale or impossible, and has not lost a race.
struct Decision {
  bool granted = false;    // the client's record is the lease, and it is written
  bool cancelled = false;  // by 'berth cancel', or the ticket that it was to replace is gone
  // The lock took so long that the snapshot is old, and the client must decide again with a new
  // one: it would be granted GPUs, or is not to wait and would be refused because of the snapshot.
  // It has written its ticket.
  bool stale = false;
  bool lost_race = false;  // another client changed the harbour first; nothing was decided
  // The client has a new ticket, the last of the queue, because its request asks for more than its
  // old one.
  bool lost_place = false;
  // With lost_race: the server granted a lease to this client, but its reply was lost. decide()
  // releases that lease.
  bool grant_unconfirmed = false;
  std::optional<Impossible> impossible;

  // Why the client waits.
  Wait wait;
  HostView host_view;
  std::size_t queue_position = 0;  // from 1
  std::size_t queue_length = 0;    // with this client
  // The tickets before its own, for an estimate; nullopt if the queue is long, or not all of them
  // were read.
  std::optional<std::vector<QueuedTicket>> earlier_tickets;

  // What must wake the client.
  std::optional<TicketName> predecessor;     // the nearest live ticket before its own
  std::optional<Client> predecessor_client;  // the client of that ticket
  // The bells of `predecessor_client`, and of the nearest two tickets of the same user before it.
  std::vector<UniqueFd> neighbour_bells;
  // The bells of all leases and of some tickets, if `watches_all_leases`.
  std::vector<UniqueFd> watched_bells;
  bool is_in_front = false;  // one of the first two tickets: decides as soon as a lease ends
  // The client watches every lease, and the strangers that block it: it relies on no other ticket.
  bool watches_all_leases = false;
  // GPUs for which no earlier ticket waits. This client watches the strangers on them.
  std::set<std::string> watched_gpus;
  std::chrono::milliseconds recovery_time_left{};  // until clients are granted GPUs again
  // Decide again after this time: a client that cannot be watched may no longer count by then.
  std::optional<std::chrono::milliseconds> recheck_after;
  bool has_unwatched_leases = false;  // some bells are not open, for want of descriptors
  bool has_unclaimed_grant = false;   // an earlier ticket is granted GPUs and has not claimed them
  // Set while tickets that may be silent are timed.
  std::optional<SilentTickets::Clock::time_point> decide_again_at;
  // The bells of tickets behind this one that this client, as the first of its user or of the
  // queue, rings later, so that they watch the leases as well.
  std::vector<UniqueFd> successor_bells;
  // The waiting clients that the decision took to be running. If one of them is stopped, the
  // decision is made again.
  std::vector<Record> relied_on_clients;

  std::vector<Record> dead_leases;  // leases of dead holders that were removed, for the history
};

// Decides for the client `self`, and writes the result to the harbour: its lease, or its ticket if
// it has to wait. Writes the ticket again if it was deleted. `snapshot` should be new: an old one
// suffices for a ticket, but not for a lease (Decision::stale).
//
// Takes the harbour's lock exclusively, and does nothing under it that could take long: it asks no
// driver, and reads no file of another process. Errors are those of the harbour.
Result<Decision> decide(Harbour& harbour, PendingClient& self, const TimedSnapshot& snapshot,
                        const Topology& topology, const LockOptions& lock_options);

// Checks whether a ticket could be granted GPUs that it has not claimed, the client's own ticket
// included (Decision::has_unclaimed_grant). Rings such tickets. If there is none, fills in
// Decision::watched_bells anew.
//
// Cheaper than decide(): the snapshot may be old, the lock is shared, and nothing is written.
Result<Decision> check_for_unclaimed_grants(Harbour& harbour, PendingClient& self,
                                            const Snapshot& snapshot, const Topology& topology,
                                            const LockOptions& lock_options);

}  // namespace berth
