// The decision; see decision.h.
#include "lease/decision.h"

#include <algorithm>
#include <fcntl.h>
#include <iterator>
#include <list>
#include <map>
#include <set>
#include <string>
#include <unistd.h>
#include <utility>

#include "harbour/bell.h"
#include "lease/own_record.h"

namespace berth {
namespace {

using Clock = SilentTickets::Clock;

constexpr std::size_t kFront = 2;
// So many tickets are read at most to find the neighbours of this one. A server tells no owner of a
// ticket that is not read.
constexpr std::size_t kMostSearched = 256;
constexpr std::size_t kMostSearchedOnServer = 16;
// So many clients of the queue are kept open. There may be more of them than descriptors.
constexpr std::size_t kKept = 32;
// Of so many tickets at the front a decision finds out whether their processes are stopped.
constexpr std::size_t kMostReliedOn = 64;
// A GPU that is reset is lost for some seconds.
constexpr std::chrono::seconds kLongImpossible(60);
// Tickets that are passed over and cannot all be watched: one of them may become a lease.
constexpr std::chrono::seconds kLookAfterSleepers(10);

// What happened since the last decision is not known, or no client could claim.
void forget_times(PendingClient& applicant) {
  applicant.silent.forget_times();
  applicant.orders.clear();
}

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

class DecisionRun {
 public:
  DecisionRun(Harbour& harbour, PendingClient& applicant, Transaction& transaction)
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
    rung_ = quiet(me_.bell.get()) || std::exchange(me_.rung, false);
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
    const auto settles = transaction_.settles();
    settling_ = settles.count() > 0;
    for (;;) {
      Planner planner(input);
      if (auto walked = walk(planner); !walked) return tl::make_unexpected(walked.error());
      const auto again = time_unclaimed(input);
      if (!again) return tl::make_unexpected(again.error());
      if (!*again) break;
    }
    if (settling_) {
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
    decision_.scene = attribute_processes(snapshot, records, *drains);
    return leases;
  }

  // Stopped, or silent for too long: either way it is granted nothing for now.
  bool is_asleep(const Client& client) const {
    return transaction_.is_stopped(client) || me_.silent.is_passed_over(client.record.id);
  }

  // Times the tickets before this one that could claim GPUs and do not. True if the queue must be
  // walked again: all tickets before this one are needed, or some are passed over from now on.
  Result<bool> time_unclaimed(const PlanInput& input) {
    if (outcome_.grant || outcome_.impossible) return false;
    if (settling_) {  // no client can claim
      forget_times(me_);
      return false;
    }
    if (!me_.silent.observe(decision_.unclaimed, rung_, position(), now_)) return false;
    if (!std::exchange(whole_, true)) return true;
    std::map<std::string, TicketName> names;
    for (const Before& one : before_) names.emplace(one.name.id, one.name);
    me_.silent.forget_unless([&](const std::string& id) { return names.contains(id); });
    Planner planner(input);
    std::list<QueuedTicket> shown;  // a list: the scheduler keeps references to them
    const auto timing = me_.silent.time(find_claimable(input, planner, shown), now_);
    for (const std::string& id : timing.ring) {
      auto client = client_of(names.at(id));
      if (!client) return tl::make_unexpected(client.error());
      if (*client != nullptr) transaction_.ring(**client);
    }
    if (timing.began) {
      if (auto rung = ring_hopeful(planner, shown); !rung) {
        return tl::make_unexpected(rung.error());
      }
    }
    remember_orders();
    decision_.decide_again = me_.silent.next_decision(now_);
    return timing.passed_over;
  }

  std::size_t position() const {
    if (!me_.ticket) return queue().size() + 1;
    const auto mine = std::lower_bound(queue().begin(), queue().end(), *me_.ticket);
    return static_cast<std::size_t>(mine - queue().begin()) + 1;
  }

  void remember_orders() {
    if (!me_.silent.is_timing()) return me_.orders.clear();
    const auto remember = [this](const TicketName& name, uid_t owner) {
      const auto known = me_.orders.try_emplace({name.id, owner}, name.order).first;
      known->second = std::min(known->second, name.order);  // of two files, the earlier
    };
    for (const Before& one : before_) remember(one.name, one.owner);
    for (const TicketName& name : queue()) {
      if (name.owner) remember(name, *name.owner);
    }
  }

  // The orders that the tickets of the leases had, as far as they are remembered, by lease.
  std::map<std::string, std::uint64_t> orders_of_leases() const {
    std::map<std::string, std::uint64_t> orders;
    if (me_.orders.empty()) return orders;
    for (const Record& lease : decision_.scene.leases) {
      const auto known = me_.orders.find({lease.id, lease.uid});
      if (known != me_.orders.end()) orders.emplace(lease.id, known->second);
    }
    return orders;
  }

  // The tickets before this one that could claim GPUs if those before them were silent. All are
  // timed at once: many silent tickets do not take longer than one.
  std::vector<SilentTickets::Claimable> find_claimable(const PlanInput& input, Planner& planner,
                                                       std::list<QueuedTicket>& shown) const {
    const auto lease_orders = orders_of_leases();
    std::vector<SilentTickets::Claimable> found;
    for (const Before& before : before_) {
      shown.push_back(*before.ticket);
      shown.back().stopped = true;
      const Outcome outcome = planner.decide(shown.back(), Planner::Explain::no);
      if ((outcome.wait && outcome.wait->passed_over) ||
          is_overtaken(before, input, lease_orders)) {
        found.push_back({before.name.id, before.ticket->stopped});
      } else if (!before.ticket->stopped) {
        (void)planner.decide(*before.ticket, Planner::Explain::no);  // it reserves
      }
    }
    return found;
  }

  // A timed ticket that could claim if no client behind it had claimed: other clients have found it
  // silent, and it would keep for itself what they left.
  bool is_overtaken(const Before& before, const PlanInput& input,
                    const std::map<std::string, std::uint64_t>& lease_orders) const {
    if (lease_orders.empty() || !me_.silent.is_timed(before.name.id)) return false;
    PlanInput earlier{input.gpus, input.closeness, input.leases, {}, input.now, input.seed};
    const auto removed = std::erase_if(earlier.leases, [&](const HeldLease& lease) {
      const auto order = lease_orders.find(lease.id);
      return order != lease_orders.end() && order->second > before.name.order;
    });
    if (removed == 0) return false;
    QueuedTicket ticket = *before.ticket;
    ticket.stopped = true;
    Planner planner(earlier);
    const Outcome outcome = planner.decide(ticket, Planner::Explain::no);
    return outcome.wait && outcome.wait->passed_over;
  }

  // Tickets behind this one that would be granted GPUs if the timed ones were silent begin to time
  // them now, too. Otherwise each would begin when the one before it has gone on.
  Result<void> ring_hopeful(Planner& planner, std::list<QueuedTicket>& shown) {
    if (!me_.ticket) return {};
    (void)planner.decide(mine_, Planner::Explain::no);
    auto name = std::upper_bound(queue().begin(), queue().end(), *me_.ticket);
    for (std::size_t read = 0; name != queue().end() && read < most_searched(); ++name, ++read) {
      if (planner.exhausted()) break;
      auto client = client_of(*name);
      if (!client) return tl::make_unexpected(client.error());
      if (*client == nullptr) continue;
      shown.push_back(queued((*client)->record, is_asleep(**client)));
      const Outcome outcome = planner.decide(shown.back(), Planner::Explain::no);
      if (outcome.grant) transaction_.ring(**client);
    }
    return {};
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
        return fail(ErrorKind::io, "this ticket's bell was replaced; try again");
      }
      me_.bell = std::move(**bell);
      me_.record.directory_id = harbour_.directory_id();
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
    for (const TicketName& name : walk_order()) {
      if (arrival && !reached && name.order > *arrival) {
        decide_mine(planner);
        reached = true;
      }
      if (me_.ticket == name || place_ == name) {
        if (!reached) decide_mine(planner);  // a second name (a hard link) is not a second ticket
        reached = true;
        continue;
      }
      cut = (reached || (awake >= kFront && !whole_)) && planner.exhausted();
      if (cut) break;
      auto client = transaction_.ticket(name);
      if (!client) return tl::make_unexpected(client.error());
      if (!*client) {
        if (!reached) note_uncounted(name, false);
        continue;
      }
      // A ticket of a later version may ask for what we do not understand: it decides for itself.
      bool asleep = is_asleep(**client);
      bool stopped = asleep || (*client)->record.version > kProtocolVersion;
      shown_.push_back(queued((*client)->record, stopped));
      const bool matters = !reached && looked_after_.size() < decision_.scene.gpus.size();
      const auto explain = matters ? Planner::Explain::yes : Planner::Explain::no;
      Outcome outcome = planner.decide(shown_.back(), explain);
      bool could_claim = outcome.wait && outcome.wait->passed_over;
      if (could_claim && stopped && is_tried_again(**client)) {
        asleep = stopped = could_claim = shown_.back().stopped = false;
        outcome = planner.decide(shown_.back(), explain);
      }
      if (outcome.wait && matters) {
        for (const Blocker& obstacle : outcome.wait->obstacles) {
          looked_after_.insert(obstacle.uuid);
        }
      }
      if (outcome.impossible) {
        impossible_.insert(name);
        if (!reached) note_uncounted(name, true);
        continue;
      }
      if (!reached) me_.uncounted.erase({name.number, name.id});  // it was so for a moment
      if (!stopped) ++awake;
      const Record& record = (*client)->record;
      if (!reached) {
        before_.push_back({name, &shown_.back(), record.uid, record.pid_namespace, asleep});
      }
      if (!asleep && decision_.relied_on.size() < kMostReliedOn) rely_on(record);
      // The first ticket that has to wait keeps GPUs from those behind it, until it ends.
      if (outcome.wait && !stopped && !reserving_) reserving_ = name;
      decision_.scene.tickets.push_back(record);
      // Also one that could claim but is passed over: it reads the ring when it continues.
      if ((outcome.grant || could_claim) && !settling_) transaction_.ring(**client);
      decision_.unclaimed = decision_.unclaimed || (outcome.grant && !reached);
      if (seen_.size() < kKept) seen_.push_back({name, std::move(**client)});
    }
    if (reached) return {};
    decide_mine(planner);
    if (cut) withhold();  // not before tickets that were not looked at
    return {};
  }

  // On a server a ticket may not count for a while because its host was cut off.
  void note_uncounted(const TicketName& name, bool impossible) {
    if (harbour_.is_shared()) return;
    const PendingClient::Uncounted now{impossible, now_};
    const auto known = me_.uncounted.try_emplace({name.number, name.id}, now).first;
    known->second.impossible = known->second.impossible && impossible;
  }

  // It stands before this one by its order, and did not count when this client came. A ticket that
  // asks for too much counts again if that was so for a moment: a GPU may have been lost and found.
  bool came_later(const TicketName& name) const {
    const auto found = me_.uncounted.find({name.number, name.id});
    return found != me_.uncounted.end() &&
           (!found->second.impossible || now_ - found->second.since >= kLongImpossible);
  }

  // The queue, with the tickets that came later than they seem behind this one.
  std::vector<TicketName> walk_order() {
    if (me_.uncounted.empty() || !me_.ticket) return queue();
    std::vector<TicketName> order;
    std::vector<TicketName> later;
    std::map<std::pair<std::uint64_t, std::string>, PendingClient::Uncounted> kept;
    for (const TicketName& name : queue()) {
      if (auto known = me_.uncounted.extract({name.number, name.id})) kept.insert(std::move(known));
    }
    me_.uncounted = std::move(kept);  // the others have left
    for (const TicketName& name : queue()) {
      (name < *me_.ticket && came_later(name) ? later : order).push_back(name);
      if (name == *me_.ticket) order.insert(order.end(), later.begin(), later.end());
    }
    return order;
  }

  // A silent ticket that could claim has another chance from time to time. One that cannot is not
  // given it: it would reserve GPUs that it may never claim.
  bool is_tried_again(const Client& client) {
    return !transaction_.is_stopped(client) && client.record.version <= kProtocolVersion &&
           me_.silent.try_again(client.record.id, now_);
  }

  // Whether its process is stopped is read after the decision, without the lock.
  void rely_on(const Record& record) {
    if (relied_on_.insert(record.id).second) decision_.relied_on.push_back(record);
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
    relied_on_.clear();
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

  // This lease is new to the clients before us that watch every lease: the first two of each user
  // (see find_neighbours()).
  Result<void> ring_front() {
    std::map<std::pair<uid_t, std::uint64_t>, std::size_t> awake_of_user;
    for (const Before& ticket : before_) {
      std::size_t& awake = awake_of_user[{ticket.owner, ticket.pid_namespace}];
      if (awake < kFront) {
        auto client = client_of(ticket.name);
        if (!client) return tl::make_unexpected(client.error());
        if (*client != nullptr) transaction_.ring(**client);
      }
      if (!ticket.asleep) ++awake;
    }
    return {};
  }

  // The next ticket that is awake may be first now. The next one of this user relied on us, and the
  // tickets between may be files of a hostile user. Tickets on the way that are asleep are rung,
  // too.
  Result<void> ring_behind(const TicketName& place) {
    decision_.relied_on.clear();
    bool rung_any = false;
    std::size_t read = 0;
    auto name = std::upper_bound(queue().begin(), queue().end(), place);
    for (; name != queue().end() && read < most_searched(); ++name) {
      if (rung_any && !may_be_mine(*name)) continue;
      ++read;
      auto client = client_of(*name);
      if (!client) return tl::make_unexpected(client.error());
      if (*client == nullptr) continue;
      const bool mine = is_mine((*client)->record);
      if (rung_any && !mine) continue;
      transaction_.ring(**client);
      if (is_asleep(**client)) continue;
      decision_.relied_on.push_back((*client)->record);
      rung_any = true;
      if (mine) break;
    }
    return {};
  }

  // Of this user, in this PID namespace: containers can be frozen.
  bool is_mine(const Record& record) const {
    return record.uid == me_.record.uid && record.pid_namespace == me_.record.pid_namespace;
  }

  std::size_t most_searched() const {
    return harbour_.is_shared() ? kMostSearchedOnServer : kMostSearched;
  }

  // By the owner of its file, without reading it.
  bool may_be_mine(const TicketName& name) const {
    return harbour_.is_shared() || name.owner == ::geteuid();
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
    for (const Blocker& obstacle : decision_.wait.obstacles) {
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
    const auto before = static_cast<std::size_t>(mine - queue().begin());
    const auto uncounted = static_cast<std::size_t>(
        std::count_if(queue().begin(), mine, [this](const TicketName& name) {
          return me_.uncounted.contains({name.number, name.id});
        }));
    decision_.position = before - uncounted + 1;
    decision_.length -= uncounted;
    if (auto found = find_neighbours(); !found) return found;
    watch(std::move(leases));
    return {};
  }

  // Keeps the bells of the leases that take up GPUs, of the ticket that reserves some, and of the
  // tickets before this one that are passed over: they may become leases without ringing.
  void watch(std::vector<Client> leases) {
    if (!decision_.watches) return;
    std::set<TicketName> passed_over;
    for (const Before& before : before_) {
      if (before.asleep) passed_over.insert(before.name);
    }
    for (const Seen& seen : seen_) {
      const bool sleeps = passed_over.erase(seen.name) > 0;
      if (seen.name == reserving_ || sleeps) watch_ticket(seen.client, decision_.bells);
    }
    if (!passed_over.empty()) look_again_in(kLookAfterSleepers);
    std::set<std::string> counted;
    for (const Record& one : decision_.scene.leases) counted.insert(one.id);
    for (Client& lease : leases) {
      if (!counted.contains(lease.record.id)) continue;
      if (lease.bell) {
        decision_.bells.push_back(std::move(lease.bell));
      } else if (lease.left) {
        look_again_in(*lease.left);
      } else {
        decision_.unwatched = true;
      }
    }
  }

  // Without its bell the end of a ticket is found out by looking again.
  void watch_ticket(const Client& client, std::vector<UniqueFd>& bells) {
    UniqueFd bell(client.bell ? ::fcntl(client.bell.get(), F_DUPFD_CLOEXEC, 0) : -1);
    if (bell) {
      bells.push_back(std::move(bell));
    } else if (client.left) {
      look_again_in(*client.left);
    } else {
      decision_.unwatched = true;
    }
  }

  // What cannot be watched counts until then, unless it is heard of.
  void look_again_in(std::chrono::milliseconds left) {
    decision_.look_again = std::min(decision_.look_again.value_or(left), left);
  }

  // The nearest live ticket before this one, and the nearest two of the same user and PID
  // namespace. The first two awake tickets of the queue decide as soon as a lease ends. They may be
  // two files of a hostile user that watch nothing, so a client relies only on two tickets of its
  // own user and PID namespace: the first two of each user watch every lease.
  Result<void> find_neighbours() {
    std::size_t awake_before = 0;
    std::size_t own_awake = 0;
    std::size_t own_before = 0;
    std::size_t read = 0;
    const auto mine = std::lower_bound(queue().begin(), queue().end(), *me_.ticket);
    for (auto name = mine; name != queue().begin() && read < most_searched();) {
      --name;
      if (impossible_.contains(*name) || came_later(*name)) continue;
      const bool any_will_do = !decision_.predecessor || awake_before < kFront;
      if (!any_will_do && !may_be_mine(*name)) continue;
      ++read;
      auto client = client_of(*name);
      if (!client) return tl::make_unexpected(client.error());
      if (*client == nullptr) continue;
      const Record& record = (*client)->record;
      const bool own = is_mine(record);
      if (!is_asleep(**client)) {
        ++awake_before;
        if (own) ++own_awake;
        rely_on(record);
      }
      if (own) ++own_before;
      if (!decision_.predecessor || (own && own_before <= kFront)) {
        watch_ticket(**client, decision_.neighbours);
      }
      if (!decision_.predecessor) {
        decision_.predecessor = *name;
        // A copy: the client may be one of `seen_`, whose bell is watched later.
        const int bell = (*client)->bell ? ::fcntl((*client)->bell.get(), F_DUPFD_CLOEXEC, 0) : -1;
        decision_.before = Client{record, UniqueFd(bell), (*client)->unheard, (*client)->left};
      }
      if (own_awake >= kFront) break;
    }
    decision_.front = awake_before < kFront;
    decision_.watches = decision_.front || own_awake < kFront;
    return own_awake > 0 ? Result<void>() : find_second(awake_before == 0);
  }

  // The first ticket of a user tells the next one a little later, which then watches as well. So
  // does the first ticket of the queue, whatever the user.
  Result<void> find_second(bool first_of_queue) {
    bool found = !first_of_queue;  // the next one of any user
    std::size_t read = 0;
    auto name = std::upper_bound(queue().begin(), queue().end(), *me_.ticket);
    for (; name != queue().end() && read < most_searched(); ++name) {
      if (found && !may_be_mine(*name)) continue;
      ++read;
      auto client = client_of(*name);
      if (!client) return tl::make_unexpected(client.error());
      if (*client == nullptr || is_asleep(**client)) continue;
      const bool own = is_mine((*client)->record);
      if (found && !own) continue;
      found = true;
      UniqueFd bell((*client)->bell ? ::fcntl((*client)->bell.get(), F_DUPFD_CLOEXEC, 0) : -1);
      if (bell) decision_.behind.push_back(std::move(bell));
      if (own) break;
    }
    return {};
  }

  Harbour& harbour_;
  PendingClient& me_;
  Transaction& transaction_;
  std::optional<TicketName> ticket_before_;
  std::optional<TicketName> place_;  // of the ticket that waits for us
  const Clock::time_point now_ = Clock::now();
  bool rung_ = false;
  bool settling_ = false;  // no client is granted anything yet
  bool whole_ = false;     // all tickets before this one are read, however few GPUs are left
  Decision decision_;
  std::set<TicketName> impossible_;
  std::list<QueuedTicket> shown_;  // a list: the scheduler keeps references to them
  std::vector<Seen> seen_;
  std::vector<Before> before_;  // all of them, where the applicant is granted something
  std::optional<TicketName> reserving_;
  std::optional<Client> last_;
  std::set<std::string> looked_after_;  // GPUs that an earlier ticket waits for
  std::set<std::string> relied_on_;     // ids
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

Result<Decision> decide(Harbour& harbour, PendingClient& applicant, const Snapshot& snapshot,
                        const Topology& topology, const Patience& patience) {
  // While a process was stopped with the lock, a stranger may have come.
  constexpr std::chrono::seconds kOld(2);
  constexpr std::chrono::milliseconds kSlowLock(500);
  constexpr std::chrono::seconds kAfterSlowLock(3);
  constexpr int kMostRepeats = 3;
  const auto asked = Clock::now();
  std::vector<Record> dead;  // of all rounds: their files are removed
  for (int repeats = 0;;) {
    applicant.stopped.refresh();
    const auto before_lock = Clock::now();
    auto transaction = harbour.begin(LockMode::exclusive, patience, applicant.record.id);
    if (!transaction) return tl::make_unexpected(transaction.error());
    const auto locked = Clock::now();
    // While a process kept the lock, no client could claim, or decide and read its bell.
    applicant.silent.exclude(locked - before_lock);
    if (!harbour.is_shared() && locked - before_lock > kSlowLock) applicant.slow_lock = locked;
    if (locked - asked > kOld) {
      applicant.rung = quiet(applicant.bell.get()) || applicant.rung;
      Decision old;
      old.stale = true;
      return old;
    }
    (*transaction)->use(applicant.stopped);
    if (locked - applicant.slow_lock < kAfterSlowLock) (*transaction)->ignore_unread_bells();
    const auto ticket = applicant.ticket;
    auto decision = DecisionRun(harbour, applicant, **transaction).run(snapshot, topology);
    const bool lacks_tickets = (*transaction)->lacks_tickets();
    transaction->reset();
    if (!decision && lacks_tickets) {  // nothing was decided; the next transaction reads further
      applicant.ticket = ticket;
      applicant.changed = applicant.rung = true;
      continue;
    }
    if (!decision) return decision;
    std::move(decision->dead.begin(), decision->dead.end(), std::back_inserter(dead));
    decision->dead = dead;
    if (decision->outrun) {  // another client was granted something meanwhile
      if (decision->unanswered) harbour.part()->release(applicant.record.id);
      continue;
    }
    // Whether those that this decision relies on are stopped is read without the lock.
    if (!applicant.stopped.read(decision->relied_on)) return decision;
    if (decision->granted) {
      ring_past_stopped(harbour, applicant.stopped);
      return decision;
    }
    if (decision->cancelled || decision->impossible) return decision;
    if (repeats++ == kMostRepeats) return decision;
  }
}

Result<Decision> look(Harbour& harbour, PendingClient& applicant, const Snapshot& snapshot,
                      const Topology& topology, const Patience& patience) {
  auto transaction = harbour.begin(LockMode::shared, patience, applicant.record.id);
  if (!transaction) return tl::make_unexpected(transaction.error());
  (*transaction)->use(applicant.stopped);
  return DecisionRun(harbour, applicant, **transaction).look(snapshot, topology);
}

}  // namespace berth
