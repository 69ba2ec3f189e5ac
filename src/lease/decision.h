// One decision, by a client that arrives, was rung, or noticed a death: read the harbour, ask the
// scheduler, claim what was granted to it, ring the client that is next.
//
// No wake-up is lost, because a client that is granted GPUs rings the one behind it before it
// commits: the rung client waits for the lock, and decides for itself even if the ringer was killed
// half-way.
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

// A client on its way: its record, its bell, and its ticket once it has one.
struct PendingClient {
  Record record;
  PrivateFd bell;
  std::optional<TicketName> ticket;
  std::string
      replaced_ticket;   // the id of a ticket of several hosts that waits for us; see roaming.h
  bool may_wait = true;  // else it leaves no ticket where it is not granted
  bool request_changed = false;  // the request is another than the ticket says
  bool was_rung = false;         // since the last decision: its bell was read already
  std::chrono::steady_clock::time_point last_slow_lock{};  // when it last had to wait for the lock
  StoppedProcesses stopped_processes{};  // of those waiting before it, as far as it has looked
  SilentTickets silent_tickets{};
  // While tickets are timed: the order of each ticket in the queue, by its id and owner. A lease of
  // the same id and owner has overtaken the tickets of a lower order that still wait.
  std::map<std::pair<std::string, uid_t>, std::uint64_t> ticket_orders{};
  // Files (number and id) of tickets that stood before this one while they did not count, or asked
  // for what this host does not have for a minute. If they count some day, they came later: a user
  // could prepare them early. Not by the id alone, which another user's file can have, too.
  struct UncountedTicket {
    bool is_impossible = false;
    std::chrono::steady_clock::time_point since{};
  };
  std::map<std::pair<std::uint64_t, std::string>, UncountedTicket> uncounted_tickets{};
};

struct Decision {
  bool granted = false;    // then the applicant's record is the lease, and it is written
  bool cancelled = false;  // by 'berth cancel'; or what it was to take the place of is gone
  bool stale = false;      // the lock took so long that the snapshot is old: nothing was decided
  bool lost_race = false;  // somebody else was faster: nothing was decided
  bool grant_unconfirmed =
      false;  // outrun by our own grant, of which we did not hear: it goes back
  std::optional<Impossible> impossible;

  // Else why it waits, and for whom.
  Wait wait;
  HostView host_view;
  std::size_t queue_position = 0;  // in the queue, from 1
  std::size_t queue_length = 0;    // of the queue, the applicant included

  // And what must wake it.
  std::optional<TicketName> predecessor;
  std::optional<Client> predecessor_client;  // the same
  std::vector<UniqueFd> neighbour_bells;     // bells: of `predecessor_client`, and of two of its
                                             // user's tickets before it
  std::vector<UniqueFd> watched_bells;  // of all leases, and of some tickets, if it watches them
  bool is_in_front = false;  // among the first two tickets: decides as soon as a lease ends
  bool watches_all_leases =
      false;  // every lease, and strangers: it relies on no other ticket for that
  // GPUs for which no earlier ticket waits: their strangers are this one's to watch.
  std::set<std::string> watched_gpus;
  std::chrono::milliseconds recovery_time_left{};          // for so long nobody is granted anything
  std::optional<std::chrono::milliseconds> recheck_after;  // when a silent one counts no more
  bool has_unwatched_leases = false;  // some leases cannot be watched: too few descriptors
  bool has_unclaimed_grant = false;   // an earlier ticket was granted and has yet to claim
  // While tickets are timed that may be silent.
  std::optional<SilentTickets::Clock::time_point> decide_again_at;
  std::vector<UniqueFd>
      successor_bells;  // bells of tickets that this one, as the first, tells to watch
  // The waiting clients that it took to be awake: it relies on them.
  std::vector<Record> relied_on_clients;

  std::vector<Record>
      dead_leases;  // leases of dead holders that were cleared away, for the history
};

// Takes the harbour's lock, and nothing else that could take long. If the applicant's ticket was
// deleted, it is written again.
Result<Decision> decide(Harbour& harbour, PendingClient& self, const Snapshot& snapshot,
                        const Topology& topology, const LockOptions& lock_options);

// The same with an old snapshot and without changing anything: could some ticket be granted GPUs
// that it has not claimed? (`has_unclaimed_grant`; also the applicant's own.) Rings it. Also renews
// `watched_bells`.
Result<Decision> check_for_unclaimed_grants(Harbour& harbour, PendingClient& self,
                                            const Snapshot& snapshot, const Topology& topology,
                                            const LockOptions& lock_options);

}  // namespace berth
