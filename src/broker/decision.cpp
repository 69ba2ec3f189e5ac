// The decision; see decision.h.
#include "broker/decision.h"

#include <algorithm>
#include <fcntl.h>
#include <list>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "broker/own_record.h"
#include "harbour/bell.h"

namespace berth {
namespace {

using Clock = SilentTickets::Clock;

constexpr std::size_t kFront = 2;
// Among so many tickets before its own a client looks for one of its user's to rely on.
constexpr std::size_t kSearched = 64;
// So many clients of the queue are kept open. There may be more of them than descriptors.
constexpr std::size_t kKept = 64;
constexpr std::size_t kMostSuspects = 64;

struct Seen {
  TicketName name;
  Client client;
};

// A ticket that stands before the applicant, and can be granted some day.
struct Before {
  TicketName name;
  const QueuedTicket* ticket;
  uid_t owner;
  std::uint64_t pid_namespace;
  bool asleep;
};

class Deciding {
 public:
  Deciding(Harbour& harbour, Applicant& applicant, Transaction& transaction)
      : harbour_(harbour),
        me_(applicant),
        transaction_(transaction),
        ticket_before_(applicant.ticket) {}

  Result<Decision> look(const Snapshot& snapshot, const Topology& topology) {
    if (me_.ticket) me_.ticket = transaction_.place(*me_.ticket);
    auto leases = read(snapshot);
    if (!leases) return tl::make_unexpected(leases.error());
    const PlanInput input = plan_input(decision_.scene, topology, std::chrono::system_clock::now());
    Planner planner(input);
    if (auto walked = walk(planner); !walked) return tl::make_unexpected(walked.error());
    const bool listed = me_.ticket && is_listed(*me_.ticket);
    decision_.unclaimed = decision_.unclaimed || !outcome_.wait || !listed;
    if (decision_.unclaimed) return std::move(decision_);
    if (auto found = find_neighbours(); !found) return tl::make_unexpected(found.error());
    watch(std::move(*leases));
    return std::move(decision_);
  }

  Result<Decision> run(const Snapshot& snapshot, const Topology& topology) {
    // Rings so far are covered by what is read from here on.
    rung_ = quiet(me_.bell.get());
    decision_.cancelled = me_.ticket && transaction_.is_ended(me_.record.id, me_.ticket);
    if (decision_.cancelled) return std::move(decision_);
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
    auto leases = read(snapshot);
    if (!leases) return tl::make_unexpected(leases.error());
    const TimePoint now = std::chrono::system_clock::now();
    const PlanInput input = plan_input(decision_.scene, topology, now);
    for (;;) {
      Planner planner(input);
      if (auto walked = walk(planner); !walked) return tl::make_unexpected(walked.error());
      const auto passed_over = pass_over_silent(input);
      if (!passed_over) return tl::make_unexpected(passed_over.error());
      if (!*passed_over) break;
    }
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

  bool is_listed(const TicketName& name) const {
    return std::binary_search(queue().begin(), queue().end(), name);
  }

  // Brings the leases and drains together with the snapshot; the leases' clients.
  Result<std::vector<Client>> read(const Snapshot& snapshot) {
    auto leases = transaction_.leases();
    if (!leases) return leases;
    auto drains = transaction_.drains();
    if (!drains) return tl::make_unexpected(drains.error());
    std::vector<Record> records;
    for (const Client& lease : *leases) records.push_back(lease.record);
    decision_.scene = make_scene(snapshot, std::move(records), *drains);
    return leases;
  }

  // Stopped, or silent for too long: either way it is granted nothing for now.
  bool is_asleep(const Client& client) const {
    return transaction_.is_stopped(client) || me_.silent.is_passed_over(client.record.id, now_);
  }

  // Tickets before this one that were granted GPUs and do not claim them. True if some of them are
  // passed over from now on: then the queue must be looked at again.
  Result<bool> pass_over_silent(const PlanInput& input) {
    const bool waits = !outcome_.grant && !outcome_.impossible;
    decision_.suspects = waits && me_.silent.suspects(decision_.unclaimed, rung_, now_);
    if (!decision_.suspects) return false;
    std::vector<std::string> ids;
    for (const TicketName& name : suspects(input)) {
      auto client = client_of(name);
      if (!client) return tl::make_unexpected(client.error());
      if (*client != nullptr) transaction_.ring(**client);
      ids.push_back(name.id);
    }
    return me_.silent.pass_over(ids, now_);
  }

  // The tickets before this one that would be granted GPUs if all before them were silent, in their
  // order. All are rung and timed at once: many silent tickets do not take longer than one.
  std::vector<TicketName> suspects(const PlanInput& input) const {
    std::set<TicketName> found;
    for (bool news = true; news && found.size() < kMostSuspects;) {
      news = false;
      Planner planner(input);
      std::list<QueuedTicket> shown;  // a list: the scheduler keeps references to them
      for (const Before& before : before_) {
        shown.push_back(*before.ticket);
        shown.back().stopped = shown.back().stopped || found.contains(before.name);
        const Outcome outcome = planner.decide(shown.back(), Planner::Explain::no);
        if (outcome.grant) news = found.insert(before.name).second || news;
      }
    }
    return {found.begin(), found.end()};
  }

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

  // Our files, or the whole directory, may have been deleted: put them back. A lease without its
  // bell would count for nothing. A ticket that says something else than we want by now is changed,
  // too.
  Result<void> restore() {
    const bool has_bell = harbour_.has_bell(me_.record.id, me_.bell.get());
    if (!has_bell) {
      auto bell = make_bell(harbour_.directory(), me_.record.id);
      if (!bell) return tl::make_unexpected(bell.error());
      if (!*bell) {
        return fail(ErrorKind::harbour, "this ticket's bell was replaced; try again");
      }
      me_.bell = std::move(**bell);
      me_.record.witness = harbour_.witness();
    }
    const bool changed = std::exchange(me_.changed, false);
    if (!me_.ticket) return {};
    me_.ticket = transaction_.place(*me_.ticket);
    if (has_bell && is_listed(*me_.ticket) && !changed) return {};
    return write_ticket(me_.ticket->number);
  }

  Result<void> write_ticket(std::uint64_t number) {
    auto written = write_own(harbour_, transaction_, me_.record, me_.bell, me_.ticket,
                             [&] { return transaction_.write_ticket(me_.record, number); });
    if (written) me_.ticket = transaction_.place({number, me_.record.id, number});
    return written;
  }

  // Looks at the queue from its head, and rings the tickets that are granted GPUs. Stops when
  // nothing is left to give, and so is short while all GPUs are in use, however long the queue.
  Result<void> walk(Planner& planner) {
    forget_walk();
    bool reached = false;
    bool cut = false;
    std::size_t awake = 0;
    // Without a ticket it stands where one that is written now would: a number from the future does
    // not put another ticket before it.
    std::optional<std::uint64_t> arrival;
    if (!me_.ticket && !place_) {
      const auto order = transaction_.next_order();
      if (!order) return tl::make_unexpected(order.error());
      arrival = *order;
    }
    for (const TicketName& name : queue()) {
      if (arrival && !reached && name.order > *arrival) {
        decide_mine(planner);
        reached = true;
      }
      if (me_.ticket == name || place_ == name) {
        if (!reached) decide_mine(planner);  // a second name (a hard link) is not a second ticket
        reached = true;
        continue;
      }
      cut = (reached || awake >= kFront) && planner.exhausted();
      if (cut) break;
      auto client = transaction_.ticket(name);
      if (!client) return tl::make_unexpected(client.error());
      if (!*client) continue;
      // A ticket of a later version may ask for what we do not understand: it decides for itself.
      const bool asleep = is_asleep(**client);
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
      const Record& record = (*client)->record;
      if (!reached) {
        before_.push_back({name, &shown_.back(), record.uid, record.pid_namespace, asleep});
      }
      if (!asleep) decision_.relied_on.push_back(record);
      // The first ticket that has to wait keeps GPUs from those behind it, until it ends.
      if (outcome.wait && !stopped && !reserving_) reserving_ = name;
      decision_.scene.tickets.push_back(record);
      if (outcome.grant) {
        transaction_.ring(**client);
        decision_.unclaimed = decision_.unclaimed || !reached;
      }
      if (seen_.size() < kKept) seen_.push_back({name, std::move(**client)});
    }
    if (reached) return {};
    decide_mine(planner);
    if (cut) withhold();  // not before tickets that were not looked at
    return {};
  }

  void forget_walk() {
    shown_.clear();
    seen_.clear();
    before_.clear();
    reserving_.reset();
    impossible_.clear();
    looked_after_.clear();
    decision_.scene.tickets.clear();
    decision_.relied_on.clear();
    decision_.unclaimed = false;
    outcome_ = {};
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

  // This lease is new to the clients before us that watch every lease: the first two, and the first
  // two of each user (see find_neighbours()).
  Result<void> ring_front() {
    std::size_t awake = 0;
    std::map<std::pair<uid_t, std::uint64_t>, std::size_t> awake_of_user;
    for (const Before& ticket : before_) {
      std::size_t& own = awake_of_user[{ticket.owner, ticket.pid_namespace}];
      if (awake < kFront || own < kFront) {
        auto client = client_of(ticket.name);
        if (!client) return tl::make_unexpected(client.error());
        if (*client != nullptr) transaction_.ring(**client);
      }
      if (ticket.asleep) continue;
      ++own;
      ++awake;
    }
    return {};
  }

  // The next ticket that is awake: it watches us, and may now be first.
  Result<void> ring_behind(const TicketName& place) {
    auto name = std::upper_bound(queue().begin(), queue().end(), place);
    for (; name != queue().end(); ++name) {
      auto client = client_of(*name);
      if (!client) return tl::make_unexpected(client.error());
      if (*client == nullptr) continue;
      transaction_.ring(**client);
      if (is_asleep(**client)) continue;
      decision_.relied_on = {(*client)->record};
      break;
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
    watch(std::move(leases));
    return {};
  }

  // Keeps the bells of the leases that take up GPUs, and of the ticket that reserves some.
  void watch(std::vector<Client> leases) {
    if (!watches_) return;
    for (const Seen& seen : seen_) {
      if (seen.name != reserving_ || !seen.client.bell) continue;
      decision_.bells.emplace_back(::fcntl(seen.client.bell.get(), F_DUPFD_CLOEXEC, 0));
    }
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
  }

  // What cannot be watched counts until then, unless it is heard of.
  void look_again_in(std::chrono::milliseconds left) {
    decision_.look_again = std::min(decision_.look_again.value_or(left), left);
  }

  // The nearest live tickets before and behind. The first two awake tickets watch every lease, for
  // all. They may be two files of a hostile user that watch nothing, so a client relies on others
  // only if two tickets of its own user, and of its PID namespace (containers can be frozen), stand
  // before it: the first two tickets of each user watch as well.
  Result<void> find_neighbours() {
    std::size_t awake_before = 0;
    std::size_t own_before = 0;
    bool second = false;
    const auto mine = std::lower_bound(queue().begin(), queue().end(), *me_.ticket);
    for (auto name = mine; name != queue().begin() && awake_before < kSearched;) {
      --name;
      if (impossible_.contains(*name)) continue;  // its client has left, or is not berth
      auto client = client_of(*name);
      if (!client) return tl::make_unexpected(client.error());
      if (*client == nullptr) continue;
      const Record& record = (*client)->record;
      if (!is_asleep(**client)) {
        ++awake_before;
        if (record.uid == me_.record.uid && record.pid_namespace == me_.record.pid_namespace) {
          ++own_before;
        }
        decision_.relied_on.push_back(record);
      }
      if (!decision_.predecessor) {
        decision_.predecessor = *name;
        decision_.before = std::move(**client);
        if (decision_.before->left) look_again_in(*decision_.before->left);
      } else if (!second && (*client)->bell) {
        // If the nearest one is stopped, the end of the one before it must be noticed here.
        second = true;
        decision_.bells.emplace_back(::fcntl((*client)->bell.get(), F_DUPFD_CLOEXEC, 0));
      }
      if (second && own_before >= kFront) break;
    }
    decision_.front = awake_before < kFront;
    watches_ = decision_.front || own_before < kFront;
    if (awake_before > 0) return {};
    auto name = std::upper_bound(queue().begin(), queue().end(), *me_.ticket);
    for (; name != queue().end(); ++name) {
      auto client = client_of(*name);
      if (!client) return tl::make_unexpected(client.error());
      if (*client == nullptr) continue;
      if (is_asleep(**client)) continue;
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
  const Clock::time_point now_ = Clock::now();
  bool rung_ = false;
  bool watches_ = false;  // the bells of all leases
  Decision decision_;
  std::set<TicketName> impossible_;
  std::list<QueuedTicket> shown_;  // a list: the scheduler keeps references to them
  std::vector<Seen> seen_;
  std::vector<Before> before_;  // all of them, where the applicant is granted something
  std::optional<TicketName> reserving_;
  std::optional<Client> last_;
  std::set<std::string> looked_after_;  // GPUs that an earlier ticket waits for
  QueuedTicket mine_;
  Outcome outcome_;
};

// The client that was to notice our lease, and the queue behind it, is stopped: the next one must.
void ring_past_stopped(Harbour& harbour, const StoppedProcesses& stopped) {
  auto transaction = harbour.begin(LockMode::shared, {});
  if (!transaction) return;
  (*transaction)->use(stopped);
  (void)(*transaction)->ring_front();
  (void)(*transaction)->commit();
}

}  // namespace

Result<Decision> decide(Harbour& harbour, Applicant& applicant, const Snapshot& snapshot,
                        const Topology& topology, const Patience& patience) {
  // While a process was stopped with the lock, a stranger may have come.
  constexpr std::chrono::seconds kOld(2);
  constexpr int kMostRepeats = 3;
  const auto asked = Clock::now();
  for (int repeats = 0;;) {
    applicant.stopped.refresh();
    auto transaction = harbour.begin(LockMode::exclusive, patience, applicant.record.id);
    if (!transaction) return tl::make_unexpected(transaction.error());
    if (Clock::now() - asked > kOld) {
      Decision old;
      old.stale = true;
      return old;
    }
    (*transaction)->use(applicant.stopped);
    const auto ticket = applicant.ticket;
    auto decision = Deciding(harbour, applicant, **transaction).run(snapshot, topology);
    const bool lacks_tickets = (*transaction)->lacks_tickets();
    transaction->reset();
    if (!decision && lacks_tickets) {  // nothing was decided; the next transaction reads further
      applicant.ticket = ticket;
      applicant.changed = true;
      continue;
    }
    if (!decision) return decision;
    if (decision->outrun) {  // another client was granted something meanwhile
      if (decision->unanswered) harbour.part()->release(applicant.record.id);
      continue;
    }
    // Whether those that this decision relies on are stopped is read without the lock.
    if (!applicant.stopped.read(decision->relied_on) || repeats++ == kMostRepeats) return decision;
    if (decision->granted) {
      ring_past_stopped(harbour, applicant.stopped);
      return decision;
    }
    if (decision->cancelled || decision->impossible) return decision;
  }
}

Result<Decision> look(Harbour& harbour, Applicant& applicant, const Snapshot& snapshot,
                      const Topology& topology, const Patience& patience) {
  auto transaction = harbour.begin(LockMode::shared, patience, applicant.record.id);
  if (!transaction) return tl::make_unexpected(transaction.error());
  (*transaction)->use(applicant.stopped);
  return Deciding(harbour, applicant, **transaction).look(snapshot, topology);
}

}  // namespace berth
