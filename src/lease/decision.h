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
  std::string instead_of;  // the id of a ticket of several hosts that waits for us; see roaming.h
  bool may_wait = true;    // else it leaves no ticket where it is not granted
  bool changed = false;    // the request is another than the ticket says
  bool rung = false;       // since the last decision: its bell was read already
  std::chrono::steady_clock::time_point slow_lock{};  // when it last had to wait for the lock
  StoppedProcesses stopped{};  // of those waiting before it, as far as it has looked
  SilentTickets silent{};
  // While tickets are timed: the order of each ticket in the queue, by its id and owner. A lease of
  // the same id and owner has overtaken the tickets of a lower order that still wait.
  std::map<std::pair<std::string, uid_t>, std::uint64_t> orders{};
  // Files (number and id) of tickets that stood before this one while they did not count, or asked
  // for what this host does not have for a minute. If they count some day, they came later: a user
  // could prepare them early. Not by the id alone, which another user's file can have, too.
  struct Uncounted {
    bool impossible = false;
    std::chrono::steady_clock::time_point since{};
  };
  std::map<std::pair<std::uint64_t, std::string>, Uncounted> uncounted{};
};

struct Decision {
  bool granted = false;     // then the applicant's record is the lease, and it is written
  bool cancelled = false;   // by 'berth cancel'; or what it was to take the place of is gone
  bool stale = false;       // the lock took so long that the snapshot is old: nothing was decided
  bool outrun = false;      // somebody else was faster: nothing was decided
  bool unanswered = false;  // outrun by our own grant, of which we did not hear: it goes back
  std::optional<Impossible> impossible;

  // Else why it waits, and for whom.
  Wait wait;
  HostView scene;
  std::size_t position = 0;  // in the queue, from 1
  std::size_t length = 0;    // of the queue, the applicant included

  // And what must wake it.
  std::optional<TicketName> predecessor;
  std::optional<Client> before;  // the same
  std::vector<UniqueFd>
      neighbours;               // bells: of `before`, and of two of its user's tickets before it
  std::vector<UniqueFd> bells;  // of all leases, and of some tickets, if it watches them
  bool front = false;           // among the first two tickets: decides as soon as a lease ends
  bool watches = false;         // every lease, and strangers: it relies on no other ticket for that
  // GPUs for which no earlier ticket waits: their strangers are this one's to watch.
  std::set<std::string> looks_after;
  std::chrono::milliseconds settles{};                  // for so long nobody is granted anything
  std::optional<std::chrono::milliseconds> look_again;  // when a silent one counts no more
  bool unwatched = false;  // some leases cannot be watched: too few descriptors
  bool unclaimed = false;  // an earlier ticket was granted and has yet to claim
  // While tickets are timed that may be silent.
  std::optional<SilentTickets::Clock::time_point> decide_again;
  std::vector<UniqueFd> behind;  // bells of tickets that this one, as the first, tells to watch
  // The waiting clients that it took to be awake: it relies on them.
  std::vector<Record> relied_on;

  std::vector<Record> dead;  // leases of dead holders that were cleared away, for the history
};

// Takes the harbour's lock, and nothing else that could take long. If the applicant's ticket was
// deleted, it is written again.
Result<Decision> decide(Harbour& harbour, PendingClient& applicant, const Snapshot& snapshot,
                        const Topology& topology, const Patience& patience);

// The same with an old snapshot and without changing anything: could some ticket be granted GPUs
// that it has not claimed? (`unclaimed`; also the applicant's own.) Rings it. Also renews `bells`.
Result<Decision> look(Harbour& harbour, PendingClient& applicant, const Snapshot& snapshot,
                      const Topology& topology, const Patience& patience);

}  // namespace berth
