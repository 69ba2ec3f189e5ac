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

constexpr std::size_t kFrontTickets = 2;
// So many tickets are read at most to find the neighbours of this one. A server tells no owner of a
// ticket that is not read.
constexpr std::size_t kMaxSearchedTickets = 256;
constexpr std::size_t kMaxSearchedTicketsOnServer = 16;
// So many clients of the queue are kept open. There may be more of them than descriptors.
constexpr std::size_t kMaxOpenClients = 32;
// Of so many tickets at the front a decision finds out whether their processes are stopped.
constexpr std::size_t kMaxReliedOnClients = 64;
// A GPU that is reset is lost for some seconds.
constexpr std::chrono::seconds kImpossibleTimeout(60);
// Tickets that are passed over and cannot all be watched: one of them may become a lease.
constexpr std::chrono::seconds kInactiveTicketsRecheckInterval(10);

// What happened since the last decision is not known, or no client could claim.
void reset_silence_timing(PendingClient& self) {
  self.silent_tickets.reset_times();
  self.ticket_orders.clear();
}

struct OpenClient {
  TicketName name;
  Client client;
};

// A ticket that stands before the applicant, and can be granted some day.
struct EarlierTicket {
  TicketName name;
  const QueuedTicket* ticket;
  uid_t owner;
  std::uint64_t pid_namespace;
  bool inactive;
};

class DecisionRun {
 public:
  DecisionRun(Harbour& harbour, PendingClient& self, Transaction& transaction)
      : harbour_(harbour), self_(self), transaction_(transaction), initial_ticket_(self.ticket) {}

  Result<Decision> check_for_unclaimed_grants(const Snapshot& snapshot, const Topology& topology) {
    if (self_.ticket) self_.ticket = transaction_.current_ticket_name(*self_.ticket);
    auto leases = read_host_view(snapshot);
    if (!leases) return tl::make_unexpected(leases.error());
    const PlanInput input =
        make_plan_input(decision_.host_view, topology, std::chrono::system_clock::now());
    Planner planner(input);
    if (auto walked = walk_queue(planner); !walked) return tl::make_unexpected(walked.error());
    const bool is_queued = self_.ticket && is_in_queue(*self_.ticket);
    decision_.has_unclaimed_grant = decision_.has_unclaimed_grant || !outcome_.wait || !is_queued;
    if (decision_.has_unclaimed_grant) return std::move(decision_);
    if (auto found = find_neighbours(); !found) return tl::make_unexpected(found.error());
    collect_watched_bells(std::move(*leases));
    return std::move(decision_);
  }

  Result<Decision> run(const Snapshot& snapshot, const Topology& topology) {
    // Rings so far are covered by what is read from here on.
    rung_ = drain_rings(self_.bell.get()) || std::exchange(self_.was_rung, false);
    decision_.cancelled = self_.ticket && transaction_.is_ended(self_.record.id, self_.ticket);
    if (decision_.cancelled) return std::move(decision_);
    if (auto adopted = adopt_existing_lease();
        !adopted || decision_.granted || decision_.lost_race) {
      if (!adopted) return tl::make_unexpected(adopted.error());
      return std::move(decision_);
    }
    if (!self_.replaced_ticket.empty()) {
      auto found = find_replaced_ticket();
      if (!found) return tl::make_unexpected(found.error());
      decision_.cancelled = !*found;
      if (!*found) return std::move(decision_);
    }
    if (auto restored = restore_own_files(); !restored)
      return tl::make_unexpected(restored.error());
    auto leases = read_host_view(snapshot);
    if (!leases) return tl::make_unexpected(leases.error());
    const TimePoint now = std::chrono::system_clock::now();
    const PlanInput input = make_plan_input(decision_.host_view, topology, now);
    const auto recovery_time_left = transaction_.recovery_time_left();
    is_recovering_ = recovery_time_left.count() > 0;
    for (;;) {
      Planner planner(input);
      if (auto walked = walk_queue(planner); !walked) return tl::make_unexpected(walked.error());
      const auto again = time_unclaimed_tickets(input);
      if (!again) return tl::make_unexpected(again.error());
      if (!*again) break;
    }
    if (is_recovering_) {
      withhold_grant();
      decision_.recovery_time_left = recovery_time_left;
      recheck_within(recovery_time_left);
    }
    if (outcome_.impossible) {
      decision_.impossible = outcome_.impossible;
    } else if (outcome_.grant) {
      if (auto done = claim_grant(now); !done) return tl::make_unexpected(done.error());
    } else if (auto waits = prepare_wait(std::move(*leases)); !waits) {
      return tl::make_unexpected(waits.error());
    }
    transaction_.remove_leftovers();
    const auto done = transaction_.commit();
    if (!done || !*done) {
      self_.ticket = initial_ticket_;
      self_.record.uuids.clear();
      self_.request_changed = true;  // whatever the ticket says by now
    }
    if (!done) return tl::make_unexpected(done.error());
    if (self_.ticket) self_.ticket = transaction_.current_ticket_name(*self_.ticket);
    decision_.lost_race = !*done;
    decision_.dead_leases = transaction_.removed_leases();
    return std::move(decision_);
  }

 private:
  const std::vector<TicketName>& queue() const { return transaction_.queue(); }

  bool is_in_queue(const TicketName& name) const {
    return std::binary_search(queue().begin(), queue().end(), name);
  }

  // Brings the leases and drains together with the snapshot; the leases' clients.
  Result<std::vector<Client>> read_host_view(const Snapshot& snapshot) {
    auto leases = transaction_.read_leases();
    if (!leases) return leases;
    auto drains = transaction_.read_drains();
    if (!drains) return tl::make_unexpected(drains.error());
    std::vector<Record> records;
    for (const Client& lease : *leases) records.push_back(lease.record);
    decision_.host_view = attribute_processes(snapshot, records, *drains);
    return leases;
  }

  // Stopped, or silent for too long: either way it is granted nothing for now.
  bool is_inactive(const Client& client) const {
    return transaction_.is_stopped(client) || self_.silent_tickets.is_passed_over(client.record.id);
  }

  // Times the tickets before this one that could claim GPUs and do not. True if the queue must be
  // walked again: all tickets before this one are needed, or some are passed over from now on.
  Result<bool> time_unclaimed_tickets(const PlanInput& input) {
    if (outcome_.grant || outcome_.impossible) return false;
    if (is_recovering_) {  // no client can claim
      reset_silence_timing(self_);
      return false;
    }
    if (!self_.silent_tickets.observe(decision_.has_unclaimed_grant, rung_, queue_position(), now_))
      return false;
    if (!std::exchange(reads_whole_queue_, true)) return true;
    std::map<std::string, TicketName> names;
    for (const EarlierTicket& earlier : earlier_tickets_)
      names.emplace(earlier.name.id, earlier.name);
    self_.silent_tickets.forget_tickets_unless(
        [&](const std::string& id) { return names.contains(id); });
    Planner planner(input);
    std::list<QueuedTicket> planner_tickets;  // a list: the scheduler keeps references to them
    const auto timing =
        self_.silent_tickets.time_tickets(find_claimable(input, planner, planner_tickets), now_);
    for (const std::string& id : timing.ids_to_ring) {
      auto client = find_client(names.at(id));
      if (!client) return tl::make_unexpected(client.error());
      if (*client != nullptr) transaction_.ring(**client);
    }
    if (timing.started) {
      if (auto rung = ring_grantable_successors(planner, planner_tickets); !rung) {
        return tl::make_unexpected(rung.error());
      }
    }
    record_ticket_orders();
    decision_.decide_again_at = self_.silent_tickets.next_decision(now_);
    return timing.passed_over;
  }

  std::size_t queue_position() const {
    if (!self_.ticket) return queue().size() + 1;
    const auto own_position = std::lower_bound(queue().begin(), queue().end(), *self_.ticket);
    return static_cast<std::size_t>(own_position - queue().begin()) + 1;
  }

  void record_ticket_orders() {
    if (!self_.silent_tickets.is_timing()) return self_.ticket_orders.clear();
    const auto remember = [this](const TicketName& name, uid_t owner) {
      const auto known = self_.ticket_orders.try_emplace({name.id, owner}, name.order).first;
      known->second = std::min(known->second, name.order);  // of two files, the earlier
    };
    for (const EarlierTicket& earlier : earlier_tickets_) remember(earlier.name, earlier.owner);
    for (const TicketName& name : queue()) {
      if (name.owner) remember(name, *name.owner);
    }
  }

  // The orders that the tickets of the leases had, as far as they are remembered, by lease.
  std::map<std::string, std::uint64_t> find_lease_orders() const {
    std::map<std::string, std::uint64_t> orders;
    if (self_.ticket_orders.empty()) return orders;
    for (const Record& lease : decision_.host_view.leases) {
      const auto known = self_.ticket_orders.find({lease.id, lease.uid});
      if (known != self_.ticket_orders.end()) orders.emplace(lease.id, known->second);
    }
    return orders;
  }

  // The tickets before this one that could claim GPUs if those before them were silent. All are
  // timed at once: many silent tickets do not take longer than one.
  std::vector<SilentTickets::Claimable> find_claimable(
      const PlanInput& input, Planner& planner, std::list<QueuedTicket>& planner_tickets) const {
    const auto lease_orders = find_lease_orders();
    std::vector<SilentTickets::Claimable> found;
    for (const EarlierTicket& earlier : earlier_tickets_) {
      planner_tickets.push_back(*earlier.ticket);
      planner_tickets.back().stopped = true;
      const Outcome outcome = planner.decide(planner_tickets.back(), Planner::Explain::no);
      if ((outcome.wait && outcome.wait->passed_over) ||
          is_overtaken(earlier, input, lease_orders)) {
        found.push_back({earlier.name.id, earlier.ticket->stopped});
      } else if (!earlier.ticket->stopped) {
        (void)planner.decide(*earlier.ticket, Planner::Explain::no);  // it reserves
      }
    }
    return found;
  }

  // A timed ticket that could claim if no client behind it had claimed: other clients have found it
  // silent, and it would keep for itself what they left.
  bool is_overtaken(const EarlierTicket& earlier, const PlanInput& input,
                    const std::map<std::string, std::uint64_t>& lease_orders) const {
    if (lease_orders.empty() || !self_.silent_tickets.is_timed(earlier.name.id)) return false;
    PlanInput earlier_input{input.gpus, input.closeness, input.leases, {}, input.now, input.seed};
    const auto removed = std::erase_if(earlier_input.leases, [&](const HeldLease& lease) {
      const auto order = lease_orders.find(lease.id);
      return order != lease_orders.end() && order->second > earlier.name.order;
    });
    if (removed == 0) return false;
    QueuedTicket ticket = *earlier.ticket;
    ticket.stopped = true;
    Planner planner(earlier_input);
    const Outcome outcome = planner.decide(ticket, Planner::Explain::no);
    return outcome.wait && outcome.wait->passed_over;
  }

  // Tickets behind this one that would be granted GPUs if the timed ones were silent begin to time
  // them now, too. Otherwise each would begin when the one before it has gone on.
  Result<void> ring_grantable_successors(Planner& planner,
                                         std::list<QueuedTicket>& planner_tickets) {
    if (!self_.ticket) return {};
    (void)planner.decide(own_ticket_, Planner::Explain::no);
    auto name = std::upper_bound(queue().begin(), queue().end(), *self_.ticket);
    for (std::size_t read = 0; name != queue().end() && read < max_searched_tickets();
         ++name, ++read) {
      if (planner.is_exhausted()) break;
      auto client = find_client(*name);
      if (!client) return tl::make_unexpected(client.error());
      if (*client == nullptr) continue;
      planner_tickets.push_back(make_queued_ticket((*client)->record, is_inactive(**client)));
      const Outcome outcome = planner.decide(planner_tickets.back(), Planner::Explain::no);
      if (outcome.grant) transaction_.ring(**client);
    }
    return {};
  }

  // The answer to our last commit may have been lost, and the lease is there.
  Result<void> adopt_existing_lease() {
    if (!harbour_.is_multi_host()) return {};
    auto held = transaction_.read_lease(self_.record.id);
    if (!held) return tl::make_unexpected(held.error());
    if (!*held || (*held)->record.uid != self_.record.uid) return {};
    if (!harbour_.has_lease(self_.record.id)) {
      // Its file was withdrawn when no answer came, and who does not use Redis may have been
      // granted its GPUs since: so it is given back, once the lock is, and asked for again.
      decision_.lost_race = decision_.grant_unconfirmed = true;
      return {};
    }
    self_.record = std::move((*held)->record);
    self_.ticket.reset();
    decision_.granted = true;
    return {};
  }

  // Where the ticket stands that waits here for us.
  Result<bool> find_replaced_ticket() {
    for (const TicketName& name : queue()) {
      if (name.id != self_.replaced_ticket) continue;
      auto ticket = transaction_.read_ticket(name);
      if (!ticket) return tl::make_unexpected(ticket.error());
      if (!*ticket || (*ticket)->record.uid != self_.record.uid) return false;
      replaced_ticket_ = name;
      return true;
    }
    return false;
  }

  // Our files, or the whole directory, may have been deleted: put them back. A lease without its
  // bell would count for nothing. A ticket that says something else than we want by now is changed,
  // too.
  Result<void> restore_own_files() {
    const bool has_bell = harbour_.has_bell(self_.record.id, self_.bell.get());
    if (!has_bell) {
      auto bell = make_bell(harbour_.directory(), self_.record.id);
      if (!bell) return tl::make_unexpected(bell.error());
      if (!*bell) {
        return fail(ErrorKind::io, "this ticket's bell was replaced; try again");
      }
      self_.bell = std::move(**bell);
      self_.record.directory_id = harbour_.directory_id();
    }
    const bool changed = std::exchange(self_.request_changed, false);
    if (!self_.ticket) return {};
    self_.ticket = transaction_.current_ticket_name(*self_.ticket);
    if (has_bell && is_in_queue(*self_.ticket) && !changed) return {};
    return write_own_ticket(self_.ticket->number);
  }

  Result<void> write_own_ticket(std::uint64_t number) {
    auto written =
        write_own_record(harbour_, transaction_, self_.record, self_.bell, self_.ticket,
                         [&] { return transaction_.write_ticket(self_.record, number); });
    if (written) self_.ticket = transaction_.current_ticket_name({number, self_.record.id, number});
    return written;
  }

  // Looks at the queue from its head, and rings the tickets that are granted GPUs. Stops when
  // nothing is left to give, and so is short while all GPUs are in use, however long the queue.
  Result<void> walk_queue(Planner& planner) {
    reset_walk();
    bool self_reached = false;
    bool stopped_early = false;
    std::size_t active = 0;
    // Without a ticket it stands where one that is written now would: a number from the future does
    // not put another ticket before it.
    std::optional<std::uint64_t> arrival;
    if (!self_.ticket && !replaced_ticket_) {
      const auto order = transaction_.next_order();
      if (!order) return tl::make_unexpected(order.error());
      arrival = *order;
    }
    for (const TicketName& name : effective_queue_order()) {
      if (arrival && !self_reached && name.order > *arrival) {
        decide_self(planner);
        self_reached = true;
      }
      if (self_.ticket == name || replaced_ticket_ == name) {
        if (!self_reached)
          decide_self(planner);  // a second name (a hard link) is not a second ticket
        self_reached = true;
        continue;
      }
      stopped_early = (self_reached || (active >= kFrontTickets && !reads_whole_queue_)) &&
                      planner.is_exhausted();
      if (stopped_early) break;
      auto client = transaction_.read_ticket(name);
      if (!client) return tl::make_unexpected(client.error());
      if (!*client) {
        if (!self_reached) note_uncounted_ticket(name, false);
        continue;
      }
      // A ticket of a later version may ask for what we do not understand: it decides for itself.
      bool inactive = is_inactive(**client);
      bool stopped = inactive || (*client)->record.version > kProtocolVersion;
      planner_tickets_.push_back(make_queued_ticket((*client)->record, stopped));
      const bool needs_blockers =
          !self_reached && gpus_waited_for_.size() < decision_.host_view.gpus.size();
      const auto explain = needs_blockers ? Planner::Explain::yes : Planner::Explain::no;
      Outcome outcome = planner.decide(planner_tickets_.back(), explain);
      bool could_claim = outcome.wait && outcome.wait->passed_over;
      if (could_claim && stopped && retry_silent_ticket(**client)) {
        inactive = stopped = could_claim = planner_tickets_.back().stopped = false;
        outcome = planner.decide(planner_tickets_.back(), explain);
      }
      if (outcome.wait && needs_blockers) {
        for (const Blocker& blocker : outcome.wait->blockers) {
          gpus_waited_for_.insert(blocker.uuid);
        }
      }
      if (outcome.impossible) {
        impossible_tickets_.insert(name);
        if (!self_reached) note_uncounted_ticket(name, true);
        continue;
      }
      if (!self_reached)
        self_.uncounted_tickets.erase({name.number, name.id});  // it was so for a moment
      if (!stopped) ++active;
      const Record& record = (*client)->record;
      if (!self_reached) {
        earlier_tickets_.push_back(
            {name, &planner_tickets_.back(), record.uid, record.pid_namespace, inactive});
      }
      if (!inactive && decision_.relied_on_clients.size() < kMaxReliedOnClients)
        add_relied_on_client(record);
      // The first ticket that has to wait keeps GPUs from those behind it, until it ends.
      if (outcome.wait && !stopped && !reserving_ticket_) reserving_ticket_ = name;
      decision_.host_view.tickets.push_back(record);
      // Also one that could claim but is passed over: it reads the ring when it continues.
      if ((outcome.grant || could_claim) && !is_recovering_) transaction_.ring(**client);
      decision_.has_unclaimed_grant =
          decision_.has_unclaimed_grant || (outcome.grant && !self_reached);
      if (open_clients_.size() < kMaxOpenClients)
        open_clients_.push_back({name, std::move(**client)});
    }
    if (self_reached) return {};
    decide_self(planner);
    if (stopped_early) withhold_grant();  // not before tickets that were not looked at
    return {};
  }

  // On a server a ticket may not count for a while because its host was cut off.
  void note_uncounted_ticket(const TicketName& name, bool impossible) {
    if (harbour_.is_multi_host()) return;
    const PendingClient::UncountedTicket now{impossible, now_};
    const auto known = self_.uncounted_tickets.try_emplace({name.number, name.id}, now).first;
    known->second.is_impossible = known->second.is_impossible && impossible;
  }

  // It stands before this one by its order, and did not count when this client came. A ticket that
  // asks for too much counts again if that was so for a moment: a GPU may have been lost and found.
  bool counts_as_later(const TicketName& name) const {
    const auto found = self_.uncounted_tickets.find({name.number, name.id});
    return found != self_.uncounted_tickets.end() &&
           (!found->second.is_impossible || now_ - found->second.since >= kImpossibleTimeout);
  }

  // The queue, with the tickets that came later than they seem behind this one.
  std::vector<TicketName> effective_queue_order() {
    if (self_.uncounted_tickets.empty() || !self_.ticket) return queue();
    std::vector<TicketName> order;
    std::vector<TicketName> later;
    std::map<std::pair<std::uint64_t, std::string>, PendingClient::UncountedTicket> kept;
    for (const TicketName& name : queue()) {
      if (auto known = self_.uncounted_tickets.extract({name.number, name.id}))
        kept.insert(std::move(known));
    }
    self_.uncounted_tickets = std::move(kept);  // the others have left
    for (const TicketName& name : queue()) {
      (name < *self_.ticket && counts_as_later(name) ? later : order).push_back(name);
      if (name == *self_.ticket) order.insert(order.end(), later.begin(), later.end());
    }
    return order;
  }

  // A silent ticket that could claim has another chance from time to time. One that cannot is not
  // given it: it would reserve GPUs that it may never claim.
  bool retry_silent_ticket(const Client& client) {
    return !transaction_.is_stopped(client) && client.record.version <= kProtocolVersion &&
           self_.silent_tickets.retry_if_due(client.record.id, now_);
  }

  // Whether its process is stopped is read after the decision, without the lock.
  void add_relied_on_client(const Record& record) {
    if (relied_on_ids_.insert(record.id).second) decision_.relied_on_clients.push_back(record);
  }

  void reset_walk() {
    planner_tickets_.clear();
    open_clients_.clear();
    earlier_tickets_.clear();
    reserving_ticket_.reset();
    impossible_tickets_.clear();
    gpus_waited_for_.clear();
    decision_.host_view.tickets.clear();
    decision_.relied_on_clients.clear();
    relied_on_ids_.clear();
    decision_.has_unclaimed_grant = false;
    outcome_ = {};
  }

  void withhold_grant() {
    if (!outcome_.grant) return;
    outcome_.grant.reset();
    outcome_.wait = Wait{};
  }

  void decide_self(Planner& planner) {
    own_ticket_ = make_queued_ticket(self_.record, false);
    outcome_ = planner.decide(own_ticket_);
  }

  Result<void> claim_grant(TimePoint now) {
    if (auto rung = ring_lease_watchers(); !rung) return rung;
    if (const auto& place = self_.ticket ? self_.ticket : replaced_ticket_) {
      if (auto rung = ring_successors(*place); !rung) return rung;
    }
    if (replaced_ticket_) transaction_.set_ticket_to_replace(*replaced_ticket_);
    self_.record.uuids = outcome_.grant->uuids;
    self_.record.granted = now;
    self_.record.epoch = transaction_.next_epoch();
    auto written = write_own_record(harbour_, transaction_, self_.record, self_.bell, self_.ticket,
                                    [&] { return transaction_.write_lease(self_.record); });
    if (!written) {
      self_.record.uuids.clear();
      return written;
    }
    if (self_.ticket) transaction_.remove_ticket(*self_.ticket);
    self_.ticket.reset();
    decision_.granted = true;
    return {};
  }

  // This lease is new to the clients before us that watch every lease: the first two of each user
  // (see find_neighbours()).
  Result<void> ring_lease_watchers() {
    std::map<std::pair<uid_t, std::uint64_t>, std::size_t> active_of_user;
    for (const EarlierTicket& earlier : earlier_tickets_) {
      std::size_t& active = active_of_user[{earlier.owner, earlier.pid_namespace}];
      if (active < kFrontTickets) {
        auto client = find_client(earlier.name);
        if (!client) return tl::make_unexpected(client.error());
        if (*client != nullptr) transaction_.ring(**client);
      }
      if (!earlier.inactive) ++active;
    }
    return {};
  }

  // The next ticket that is awake may be first now. The next one of this user relied on us, and the
  // tickets between may be files of a hostile user. Tickets on the way that are asleep are rung,
  // too.
  Result<void> ring_successors(const TicketName& place) {
    decision_.relied_on_clients.clear();
    bool rung_any = false;
    std::size_t read = 0;
    auto name = std::upper_bound(queue().begin(), queue().end(), place);
    for (; name != queue().end() && read < max_searched_tickets(); ++name) {
      if (rung_any && !may_be_same_user(*name)) continue;
      ++read;
      auto client = find_client(*name);
      if (!client) return tl::make_unexpected(client.error());
      if (*client == nullptr) continue;
      const bool own = is_same_user_and_namespace((*client)->record);
      if (rung_any && !own) continue;
      transaction_.ring(**client);
      if (is_inactive(**client)) continue;
      decision_.relied_on_clients.push_back((*client)->record);
      rung_any = true;
      if (own) break;
    }
    return {};
  }

  // Of this user, in this PID namespace: containers can be frozen.
  bool is_same_user_and_namespace(const Record& record) const {
    return record.uid == self_.record.uid && record.pid_namespace == self_.record.pid_namespace;
  }

  std::size_t max_searched_tickets() const {
    return harbour_.is_multi_host() ? kMaxSearchedTicketsOnServer : kMaxSearchedTickets;
  }

  // By the owner of its file, without reading it.
  bool may_be_same_user(const TicketName& name) const {
    return harbour_.is_multi_host() || name.owner == ::geteuid();
  }

  // The live client of a ticket, until the next call.
  Result<Client*> find_client(const TicketName& name) {
    for (OpenClient& open_client : open_clients_) {
      if (open_client.name == name) return &open_client.client;
    }
    auto client = transaction_.read_ticket(name);
    if (!client) return tl::make_unexpected(client.error());
    last_read_client_ = std::move(*client);
    return last_read_client_ ? &*last_read_client_ : nullptr;
  }

  Result<void> prepare_wait(std::vector<Client> leases) {
    decision_.wait = std::move(*outcome_.wait);
    for (const Blocker& blocker : decision_.wait.blockers) {
      if (!gpus_waited_for_.contains(blocker.uuid)) decision_.watched_gpus.insert(blocker.uuid);
    }
    if (!self_.ticket && self_.may_wait) {
      auto order = transaction_.next_order();
      if (!order) return tl::make_unexpected(order.error());
      if (auto written = write_own_ticket(*order); !written) return written;
    }
    decision_.queue_length = queue().size();
    if (!self_.ticket) return {};
    const auto own_position = std::lower_bound(queue().begin(), queue().end(), *self_.ticket);
    const auto earlier_count = static_cast<std::size_t>(own_position - queue().begin());
    const auto uncounted_count = static_cast<std::size_t>(
        std::count_if(queue().begin(), own_position, [this](const TicketName& name) {
          return self_.uncounted_tickets.contains({name.number, name.id});
        }));
    decision_.queue_position = earlier_count - uncounted_count + 1;
    decision_.queue_length -= uncounted_count;
    if (auto found = find_neighbours(); !found) return found;
    collect_watched_bells(std::move(leases));
    return {};
  }

  // Keeps the bells of the leases that take up GPUs, of the ticket that reserves some, and of the
  // tickets before this one that are passed over: they may become leases without ringing.
  void collect_watched_bells(std::vector<Client> leases) {
    if (!decision_.watches_all_leases) return;
    std::set<TicketName> passed_over;
    for (const EarlierTicket& earlier : earlier_tickets_) {
      if (earlier.inactive) passed_over.insert(earlier.name);
    }
    for (const OpenClient& open_client : open_clients_) {
      const bool is_inactive_ticket = passed_over.erase(open_client.name) > 0;
      if (open_client.name == reserving_ticket_ || is_inactive_ticket)
        add_ticket_bell(open_client.client, decision_.watched_bells);
    }
    if (!passed_over.empty()) recheck_within(kInactiveTicketsRecheckInterval);
    std::set<std::string> counted;
    for (const Record& one : decision_.host_view.leases) counted.insert(one.id);
    for (Client& lease : leases) {
      if (!counted.contains(lease.record.id)) continue;
      if (lease.bell) {
        decision_.watched_bells.push_back(std::move(lease.bell));
      } else if (lease.expires_in) {
        recheck_within(*lease.expires_in);
      } else {
        decision_.has_unwatched_leases = true;
      }
    }
  }

  // Without its bell the end of a ticket is found out by looking again.
  void add_ticket_bell(const Client& client, std::vector<UniqueFd>& bells) {
    UniqueFd bell(client.bell ? ::fcntl(client.bell.get(), F_DUPFD_CLOEXEC, 0) : -1);
    if (bell) {
      bells.push_back(std::move(bell));
    } else if (client.expires_in) {
      recheck_within(*client.expires_in);
    } else {
      decision_.has_unwatched_leases = true;
    }
  }

  // What cannot be watched counts until then, unless it is heard of.
  void recheck_within(std::chrono::milliseconds left) {
    decision_.recheck_after = std::min(decision_.recheck_after.value_or(left), left);
  }

  // The nearest live ticket before this one, and the nearest two of the same user and PID
  // namespace. The first two awake tickets of the queue decide as soon as a lease ends. They may be
  // two files of a hostile user that watch nothing, so a client relies only on two tickets of its
  // own user and PID namespace: the first two of each user watch every lease.
  Result<void> find_neighbours() {
    std::size_t active_before = 0;
    std::size_t own_active = 0;
    std::size_t own_before = 0;
    std::size_t read = 0;
    const auto own_position = std::lower_bound(queue().begin(), queue().end(), *self_.ticket);
    for (auto name = own_position; name != queue().begin() && read < max_searched_tickets();) {
      --name;
      if (impossible_tickets_.contains(*name) || counts_as_later(*name)) continue;
      const bool accepts_any_user = !decision_.predecessor || active_before < kFrontTickets;
      if (!accepts_any_user && !may_be_same_user(*name)) continue;
      ++read;
      auto client = find_client(*name);
      if (!client) return tl::make_unexpected(client.error());
      if (*client == nullptr) continue;
      const Record& record = (*client)->record;
      const bool own = is_same_user_and_namespace(record);
      if (!is_inactive(**client)) {
        ++active_before;
        if (own) ++own_active;
        add_relied_on_client(record);
      }
      if (own) ++own_before;
      if (!decision_.predecessor || (own && own_before <= kFrontTickets)) {
        add_ticket_bell(**client, decision_.neighbour_bells);
      }
      if (!decision_.predecessor) {
        decision_.predecessor = *name;
        // A copy: the client may be one of `open_clients_`, whose bell is watched later.
        const int bell = (*client)->bell ? ::fcntl((*client)->bell.get(), F_DUPFD_CLOEXEC, 0) : -1;
        decision_.predecessor_client =
            Client{record, UniqueFd(bell), (*client)->unanswered, (*client)->expires_in};
      }
      if (own_active >= kFrontTickets) break;
    }
    decision_.is_in_front = active_before < kFrontTickets;
    decision_.watches_all_leases = decision_.is_in_front || own_active < kFrontTickets;
    return own_active > 0 ? Result<void>() : find_second_watcher(active_before == 0);
  }

  // The first ticket of a user tells the next one a little later, which then watches as well. So
  // does the first ticket of the queue, whatever the user.
  Result<void> find_second_watcher(bool first_of_queue) {
    bool found = !first_of_queue;  // the next one of any user
    std::size_t read = 0;
    auto name = std::upper_bound(queue().begin(), queue().end(), *self_.ticket);
    for (; name != queue().end() && read < max_searched_tickets(); ++name) {
      if (found && !may_be_same_user(*name)) continue;
      ++read;
      auto client = find_client(*name);
      if (!client) return tl::make_unexpected(client.error());
      if (*client == nullptr || is_inactive(**client)) continue;
      const bool own = is_same_user_and_namespace((*client)->record);
      if (found && !own) continue;
      found = true;
      UniqueFd bell((*client)->bell ? ::fcntl((*client)->bell.get(), F_DUPFD_CLOEXEC, 0) : -1);
      if (bell) decision_.successor_bells.push_back(std::move(bell));
      if (own) break;
    }
    return {};
  }

  Harbour& harbour_;
  PendingClient& self_;
  Transaction& transaction_;
  std::optional<TicketName> initial_ticket_;
  std::optional<TicketName> replaced_ticket_;  // of the ticket that waits for us
  const Clock::time_point now_ = Clock::now();
  bool rung_ = false;
  bool is_recovering_ = false;  // no client is granted anything yet
  bool reads_whole_queue_ =
      false;  // all tickets before this one are read, however few GPUs are left
  Decision decision_;
  std::set<TicketName> impossible_tickets_;
  std::list<QueuedTicket> planner_tickets_;  // a list: the scheduler keeps references to them
  std::vector<OpenClient> open_clients_;
  std::vector<EarlierTicket>
      earlier_tickets_;  // all of them, where the applicant is granted something
  std::optional<TicketName> reserving_ticket_;
  std::optional<Client> last_read_client_;
  std::set<std::string> gpus_waited_for_;  // GPUs that an earlier ticket waits for
  std::set<std::string> relied_on_ids_;    // ids
  QueuedTicket own_ticket_;
  Outcome outcome_;
};

// The client that was to notice our lease, and the queue behind it, is stopped: the next one must.
void ring_past_stopped(Harbour& harbour, const StoppedProcesses& stopped) {
  auto transaction = harbour.begin(LockMode::shared, {});
  if (!transaction) return;
  (*transaction)->set_stopped_processes(stopped);
  (void)(*transaction)->ring_front();
  (void)(*transaction)->commit();
}

}  // namespace

Result<Decision> decide(Harbour& harbour, PendingClient& self, const Snapshot& snapshot,
                        const Topology& topology, const LockOptions& lock_options) {
  // While a process was stopped with the lock, a stranger may have come.
  constexpr std::chrono::seconds kMaxSnapshotAge(2);
  constexpr std::chrono::milliseconds kSlowLock(500);
  constexpr std::chrono::seconds kAfterSlowLock(3);
  constexpr int kMaxRepeats = 3;
  const auto started = Clock::now();
  std::vector<Record> dead_leases;  // of all rounds: their files are removed
  for (int repeats = 0;;) {
    self.stopped_processes.refresh();
    const auto before_lock = Clock::now();
    auto transaction = harbour.begin(LockMode::exclusive, lock_options, self.record.id);
    if (!transaction) return tl::make_unexpected(transaction.error());
    const auto locked = Clock::now();
    // While a process kept the lock, no client could claim, or decide and read its bell.
    self.silent_tickets.exclude_time(locked - before_lock);
    if (!harbour.is_multi_host() && locked - before_lock > kSlowLock) self.last_slow_lock = locked;
    if (locked - started > kMaxSnapshotAge) {
      self.was_rung = drain_rings(self.bell.get()) || self.was_rung;
      Decision stale_decision;
      stale_decision.stale = true;
      return stale_decision;
    }
    (*transaction)->set_stopped_processes(self.stopped_processes);
    if (locked - self.last_slow_lock < kAfterSlowLock) (*transaction)->ignore_unread_bells();
    const auto ticket = self.ticket;
    auto decision = DecisionRun(harbour, self, **transaction).run(snapshot, topology);
    const bool needs_more_tickets = (*transaction)->needs_more_tickets();
    transaction->reset();
    if (!decision &&
        needs_more_tickets) {  // nothing was decided; the next transaction reads further
      self.ticket = ticket;
      self.request_changed = self.was_rung = true;
      continue;
    }
    if (!decision) return decision;
    std::move(decision->dead_leases.begin(), decision->dead_leases.end(),
              std::back_inserter(dead_leases));
    decision->dead_leases = dead_leases;
    if (decision->lost_race) {  // another client was granted something meanwhile
      if (decision->grant_unconfirmed) harbour.store()->release(self.record.id);
      continue;
    }
    // Whether those that this decision relies on are stopped is read without the lock.
    if (!self.stopped_processes.read(decision->relied_on_clients)) return decision;
    if (decision->granted) {
      ring_past_stopped(harbour, self.stopped_processes);
      return decision;
    }
    if (decision->cancelled || decision->impossible) return decision;
    if (repeats++ == kMaxRepeats) return decision;
  }
}

Result<Decision> check_for_unclaimed_grants(Harbour& harbour, PendingClient& self,
                                            const Snapshot& snapshot, const Topology& topology,
                                            const LockOptions& lock_options) {
  auto transaction = harbour.begin(LockMode::shared, lock_options, self.record.id);
  if (!transaction) return tl::make_unexpected(transaction.error());
  (*transaction)->set_stopped_processes(self.stopped_processes);
  return DecisionRun(harbour, self, **transaction).check_for_unclaimed_grants(snapshot, topology);
}

}  // namespace berth
