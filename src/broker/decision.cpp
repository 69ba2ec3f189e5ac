// The decision; see decision.h.
#include "broker/decision.h"

#include <algorithm>
#include <list>
#include <set>
#include <string>
#include <utility>

#include "broker/own_record.h"
#include "harbour/bell.h"

namespace berth {
namespace {

constexpr std::size_t kFront = 2;
// Who stands behind so many tickets of one other user does not rely on them.
constexpr std::size_t kLongRun = 64;
// So many clients of the queue are kept open. There may be more of them than descriptors.
constexpr std::size_t kKept = 64;

struct Seen {
  TicketName name;
  Client client;
};

// A ticket that stands before the applicant, and can be granted some day.
struct Before {
  TicketName name;
  uid_t owner;
  bool asleep;
};

class Deciding {
 public:
  Deciding(Harbour& harbour, Applicant& applicant, Transaction& transaction)
      : harbour_(harbour),
        me_(applicant),
        transaction_(transaction),
        ticket_before_(applicant.ticket) {}

  Result<Decision> run(const Snapshot& snapshot, const Topology& topology) {
    // Rings so far are covered by what is read from here on.
    quiet(me_.bell.get());
    decision_.cancelled = me_.ticket && transaction_.is_ended(me_.record.id, me_.ticket);
    if (decision_.cancelled) {
      harbour_.forget_end(me_.record.id);
      return std::move(decision_);
    }
    if (auto held = adopt(); !held || decision_.granted || decision_.outrun) {
      if (!held) return tl::make_unexpected(held.error());
      return std::move(decision_);
    }
    if (!me_.instead_of.empty()) {
      auto found = find_place();
      if (!found) return tl::make_unexpected(found.error());
      decision_.cancelled = !*found;
      if (!*found) return std::move(decision_);
    }
    if (auto restored = restore(); !restored) return tl::make_unexpected(restored.error());
    auto leases = transaction_.leases();
    if (!leases) return tl::make_unexpected(leases.error());
    auto drains = transaction_.drains();
    if (!drains) return tl::make_unexpected(drains.error());
    std::vector<Record> records;
    for (const Client& lease : *leases) records.push_back(lease.record);
    decision_.scene = make_scene(snapshot, std::move(records), *drains);
    const TimePoint now = std::chrono::system_clock::now();
    const PlanInput input = plan_input(decision_.scene, topology, now);
    Planner planner(input);
    if (auto walked = walk(planner); !walked) return tl::make_unexpected(walked.error());
    if (const auto settles = transaction_.settles(); settles.count() > 0) {
      withhold();
      decision_.settles = settles;
      look_again_in(settles);
    }
    if (outcome_.impossible) {
      decision_.impossible = outcome_.impossible;
    } else if (outcome_.grant) {
      if (auto done = claim(now); !done) return tl::make_unexpected(done.error());
    } else if (auto waits = prepare_wait(std::move(*leases)); !waits) {
      return tl::make_unexpected(waits.error());
    }
    transaction_.tidy();
    const auto done = transaction_.commit();
    if (!done || !*done) {
      me_.ticket = ticket_before_;
      me_.record.uuids.clear();
      me_.changed = true;  // whatever the ticket says by now
    }
    if (!done) return tl::make_unexpected(done.error());
    if (me_.ticket) me_.ticket = transaction_.place(*me_.ticket);
    decision_.outrun = !*done;
    decision_.dead = transaction_.cleared();
    return std::move(decision_);
  }

 private:
  const std::vector<TicketName>& queue() const { return transaction_.queue(); }

  // The answer to our last commit may have been lost, and the lease is there.
  Result<void> adopt() {
    if (!harbour_.is_shared()) return {};
    auto held = transaction_.lease(me_.record.id);
    if (!held) return tl::make_unexpected(held.error());
    if (!*held || (*held)->record.uid != me_.record.uid) return {};
    if (!harbour_.has_lease(me_.record.id)) {
      // Its file was withdrawn when no answer came, and who does not use Redis may have been
      // granted its GPUs since: so it is given back, once the lock is, and asked for again.
      decision_.outrun = decision_.unanswered = true;
      return {};
    }
    me_.record = std::move((*held)->record);
    me_.ticket.reset();
    decision_.granted = true;
    return {};
  }

  // Where the ticket stands that waits here for us.
  Result<bool> find_place() {
    for (const TicketName& name : queue()) {
      if (name.id != me_.instead_of) continue;
      auto ticket = transaction_.ticket(name);
      if (!ticket) return tl::make_unexpected(ticket.error());
      if (!*ticket || (*ticket)->record.uid != me_.record.uid) return false;
      place_ = name;
      return true;
    }
    return false;
  }

  // Somebody may have deleted our files, or the whole directory: put them back where they were. A
  // lease without its bell would count for nothing. A ticket that says something else than we want
  // by now is written again, too.
  Result<void> restore() {
    const bool has_bell = harbour_.has_bell(me_.record.id, me_.bell.get());
    if (!has_bell) {
      auto bell = make_bell(harbour_.directory(), me_.record.id);
      if (!bell) return tl::make_unexpected(bell.error());
      if (!*bell) {
        return fail(ErrorKind::harbour, "somebody replaced this ticket's bell; try again");
      }
      me_.bell = std::move(**bell);
      me_.record.witness = harbour_.witness();
    }
    const bool changed = std::exchange(me_.changed, false);
    if (!me_.ticket) return {};
    const bool listed = std::binary_search(queue().begin(), queue().end(), *me_.ticket);
    if (has_bell && listed && !changed) return {};
    transaction_.remove_ticket(*me_.ticket);
    return write_ticket(me_.ticket->order);
  }

  Result<void> write_ticket(std::uint64_t order) {
    auto written = write_own(harbour_, transaction_, me_.record, me_.bell, me_.ticket,
                             [&] { return transaction_.write_ticket(me_.record, order); });
    if (written) me_.ticket = TicketName{order, me_.record.id};
    return written;
  }

  // Looks at the queue from its head, and rings who is granted. Stops when nothing is left to give,
  // and so is short while all GPUs are in use, however long the queue.
  Result<void> walk(Planner& planner) {
    bool reached = false;
    bool cut = false;
    std::size_t awake = 0;
    for (const TicketName& name : queue()) {
      if (me_.ticket == name || place_ == name) {
        decide_mine(planner);
        reached = true;
        continue;
      }
      cut = (reached || awake >= kFront) && planner.exhausted();
      if (cut) break;
      auto client = transaction_.ticket(name);
      if (!client) return tl::make_unexpected(client.error());
      if (!*client) continue;
      // A ticket of a later version may ask for what we do not understand: it decides for itself.
      const bool asleep = is_stopped(**client);
      const bool stopped = asleep || (*client)->record.version > kProtocolVersion;
      shown_.push_back(queued((*client)->record, stopped));
      const bool matters = !reached && looked_after_.size() < decision_.scene.gpus.size();
      const Outcome outcome =
          planner.decide(shown_.back(), matters ? Planner::Explain::yes : Planner::Explain::no);
      if (outcome.wait && matters) {
        for (const Obstacle& obstacle : outcome.wait->obstacles) {
          looked_after_.insert(obstacle.uuid);
        }
      }
      if (outcome.impossible) {
        impossible_.insert(name);
        continue;
      }
      if (!stopped) ++awake;
      if (!reached) before_.push_back({name, (*client)->record.uid, asleep});
      decision_.scene.tickets.push_back((*client)->record);
      if (outcome.grant) {
        transaction_.ring(**client);
        decision_.unclaimed = decision_.unclaimed || !reached;
      }
      if (seen_.size() < kKept) seen_.push_back({name, std::move(**client)});
    }
    if (reached) return {};
    decide_mine(planner);
    if (cut) withhold();  // not before those whom nobody has looked at
    return {};
  }

  void withhold() {
    if (!outcome_.grant) return;
    outcome_.grant.reset();
    outcome_.wait = Wait{};
  }

  void decide_mine(Planner& planner) {
    mine_ = queued(me_.record, false);
    outcome_ = planner.decide(mine_);
  }

  Result<void> claim(TimePoint now) {
    if (auto rung = ring_front(); !rung) return rung;
    if (const auto& place = me_.ticket ? me_.ticket : place_) {
      if (auto rung = ring_behind(*place); !rung) return rung;
    }
    if (place_) transaction_.take_place_of(*place_);
    me_.record.uuids = outcome_.grant->uuids;
    me_.record.granted = now;
    me_.record.epoch = transaction_.next_epoch();
    auto written = write_own(harbour_, transaction_, me_.record, me_.bell, me_.ticket,
                             [&] { return transaction_.write_lease(me_.record); });
    if (!written) {
      me_.record.uuids.clear();
      return written;
    }
    if (me_.ticket) transaction_.remove_ticket(*me_.ticket);
    me_.ticket.reset();
    decision_.granted = true;
    return {};
  }

  // The first two watch every lease, and who stands behind one other user's tickets alone (see
  // find_neighbours()). This lease is new to those of them who stand before us.
  Result<void> ring_front() {
    std::size_t awake = 0;
    std::size_t run = 0;  // so many of the last ones are one user's
    uid_t user = 0;
    for (const Before& ticket : before_) {
      const bool distrusts = ticket.owner != user && run >= std::min(awake, kLongRun);
      if (awake < kFront || distrusts) {
        auto client = client_of(ticket.name);
        if (!client) return tl::make_unexpected(client.error());
        if (*client != nullptr) transaction_.ring(**client);
      }
      if (ticket.asleep) continue;
      run = ticket.owner == user ? run + 1 : 1;
      user = ticket.owner;
      ++awake;
    }
    return {};
  }

  // The next ticket that can hear it: it watches us, and may now be first.
  Result<void> ring_behind(const TicketName& place) {
    auto name = std::upper_bound(queue().begin(), queue().end(), place);
    for (; name != queue().end(); ++name) {
      auto client = client_of(*name);
      if (!client) return tl::make_unexpected(client.error());
      if (*client == nullptr) continue;
      transaction_.ring(**client);
      if (!is_stopped(**client)) break;
    }
    return {};
  }

  // The live client of a ticket, until the next call.
  Result<Client*> client_of(const TicketName& name) {
    for (Seen& seen : seen_) {
      if (seen.name == name) return &seen.client;
    }
    auto client = transaction_.ticket(name);
    if (!client) return tl::make_unexpected(client.error());
    last_ = std::move(*client);
    return last_ ? &*last_ : nullptr;
  }

  Result<void> prepare_wait(std::vector<Client> leases) {
    decision_.wait = std::move(*outcome_.wait);
    for (const Obstacle& obstacle : decision_.wait.obstacles) {
      if (!looked_after_.contains(obstacle.uuid)) decision_.looks_after.insert(obstacle.uuid);
    }
    if (!me_.ticket && me_.may_wait) {
      auto order = transaction_.next_order();
      if (!order) return tl::make_unexpected(order.error());
      if (auto written = write_ticket(*order); !written) return written;
    }
    decision_.length = queue().size();
    if (!me_.ticket) return {};
    const auto mine = std::lower_bound(queue().begin(), queue().end(), *me_.ticket);
    decision_.position = static_cast<std::size_t>(mine - queue().begin()) + 1;
    if (auto found = find_neighbours(); !found) return found;
    if (!decision_.front) return {};
    const auto& counted = decision_.scene.leases;
    for (Client& lease : leases) {
      const bool counts = std::any_of(counted.begin(), counted.end(),
                                      [&](const Record& one) { return one.id == lease.record.id; });
      if (!counts) continue;
      if (lease.bell) {
        decision_.bells.push_back(std::move(lease.bell));
      } else if (lease.left) {
        look_again_in(*lease.left);
      } else {
        decision_.unwatched = true;
      }
    }
    return {};
  }

  // What cannot be watched counts until then, unless it is heard of.
  void look_again_in(std::chrono::milliseconds left) {
    decision_.look_again = std::min(decision_.look_again.value_or(left), left);
  }

  // The nearest live tickets before and behind.
  Result<void> find_neighbours() {
    std::size_t awake_before = 0;
    // Two watchers of one user could be two files that watch nothing. So who stands behind tickets
    // of one other user alone watches as well.
    bool trusted = false;
    std::optional<uid_t> user;
    const auto mine = std::lower_bound(queue().begin(), queue().end(), *me_.ticket);
    for (auto name = mine; name != queue().begin() && awake_before < kLongRun;) {
      --name;
      if (impossible_.contains(*name)) continue;  // its client has left, or is none of ours
      auto client = client_of(*name);
      if (!client) return tl::make_unexpected(client.error());
      if (*client == nullptr) continue;
      const uid_t owner = (*client)->record.uid;
      if (!is_stopped(**client)) {
        ++awake_before;
        trusted = trusted || owner == me_.record.uid || (user && *user != owner);
        user = owner;
      }
      if (!decision_.predecessor) {
        decision_.predecessor = *name;
        decision_.before = std::move(**client);
        if (decision_.before->left) look_again_in(*decision_.before->left);
      }
      if (trusted && awake_before >= kFront) break;
    }
    decision_.front = awake_before < kFront || !trusted;
    if (awake_before > 0) return {};
    auto name = std::upper_bound(queue().begin(), queue().end(), *me_.ticket);
    for (; name != queue().end(); ++name) {
      auto client = client_of(*name);
      if (!client) return tl::make_unexpected(client.error());
      if (*client == nullptr) continue;
      if (is_stopped(**client)) continue;
      decision_.behind = std::move((*client)->bell);
      break;
    }
    return {};
  }

  Harbour& harbour_;
  Applicant& me_;
  Transaction& transaction_;
  std::optional<TicketName> ticket_before_;
  std::optional<TicketName> place_;  // of the ticket that waits for us
  Decision decision_;
  std::set<TicketName> impossible_;
  std::list<QueuedTicket> shown_;  // a list: the scheduler keeps references to them
  std::vector<Seen> seen_;
  std::vector<Before> before_;  // all of them, where the applicant is granted something
  std::optional<Client> last_;
  std::set<std::string> looked_after_;  // GPUs that an earlier ticket waits for
  QueuedTicket mine_;
  Outcome outcome_;
};

}  // namespace

Result<Decision> decide(Harbour& harbour, Applicant& applicant, const Snapshot& snapshot,
                        const Topology& topology, const Patience& patience) {
  // While somebody was stopped with the lock, a stranger may have come.
  constexpr std::chrono::seconds kOld(2);
  const auto asked = std::chrono::steady_clock::now();
  for (;;) {
    auto transaction = harbour.begin(LockMode::exclusive, patience, applicant.record.id);
    if (!transaction) return tl::make_unexpected(transaction.error());
    if (std::chrono::steady_clock::now() - asked > kOld) {
      Decision old;
      old.stale = true;
      return old;
    }
    // Each time that we were outrun, somebody else was granted something.
    auto decision = Deciding(harbour, applicant, **transaction).run(snapshot, topology);
    if (!decision || !decision->outrun) return decision;
    transaction->reset();
    if (decision->unanswered) harbour.part()->release(applicant.record.id);
  }
}

}  // namespace berth
