// The loop of a client that waits for GPUs: decide, wait for a change, decide again; see acquire.h.
#include "lease/acquire.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <random>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "archive/user_folder.h"
#include "base/process.h"
#include "base/rate_limiter.h"
#include "base/simulation.h"
#include "base/text.h"
#include "base/users.h"
#include "cluster/store/hosts.h"
#include "harbour/bell.h"
#include "harbour/setup.h"
#include "lease/decision.h"
#include "lease/lease_history.h"
#include "lease/stranger_watch.h"
#include "lease/sublease.h"
#include "status/explain.h"
#include "status/start_estimates.h"

namespace berth {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

// How soon a client tries an unavailable server again, plus up to the same time at random.
constexpr milliseconds kServerRetryInterval(500);
// A client that may be granted GPUs asks the driver again while it waits for the harbour's lock, if
// its snapshot is older than this. decide() grants nothing by a snapshot of 2 s.
constexpr milliseconds kSnapshotRenewalAge(500);
// After the end of a lease, the clients in front have this time to act before this one checks.
constexpr seconds kRecheckDelay(1);
// The first ticket of a user rings the second one after this time, so that two watch the leases.
constexpr seconds kSecondWatcherDelay(5);
// Every waiting client decides again after the minimum plus a random part of the jitter, in case
// that a wake-up was lost.
constexpr seconds kMinAuditInterval(30);
constexpr seconds kAuditJitter(30);
// An audit of a client at one of these positions is always a full decision.
constexpr std::size_t kFullAuditPositions = 3;

class AcquireLoop {
 public:
  AcquireLoop(Probe& probe, Harbour harbour, AcquireRequest request,
              const AcquireCallbacks& callbacks)
      : probe_(probe),
        harbour_(std::move(harbour)),
        request_(std::move(request)),
        callbacks_(callbacks) {
    if (request_.timeout) deadline_ = start_time_ + *request_.timeout;
    // A request with --no-wait keeps the short default timeout; the error names the lock's holder.
    if (!request_.no_wait) lock_options_.timeout = std::chrono::hours(24 * 365);
    lock_options_.should_give_up = [this] {
      return gave_up_on_lock_ = check_interrupted() || is_past_deadline();
    };
    lock_options_.on_slow = [this](const std::string& holder) {
      send_notice("waiting for the harbour lock, which is held by " + holder);
    };
    lock_options_.while_waiting = [this] { act_while_waiting_for_lock(); };
  }

  AcquireLoop(const AcquireLoop&) = delete;
  AcquireLoop& operator=(const AcquireLoop&) = delete;
  ~AcquireLoop() { leave_queue(); }

  Result<std::optional<Lease>> run() {
    TRY(prepare_client());
    for (;;) {
      // Before the snapshot, since the driver may take seconds: other clients take an unread bell
      // as a sign that this process is stopped.
      self_.was_rung = clear_rings(self_.bell.get()) || self_.was_rung;
      const auto asked = take_snapshot();
      if (check_interrupted()) return std::nullopt;
      if (!asked) {
        if (pause_before_retry(asked.error())) continue;
        if (check_interrupted()) return std::nullopt;
        return tl::make_unexpected(asked.error());
      }
      const std::vector<Gpu>& gpus = snapshot_.snapshot.gpus;
      // Only once: the indices of GPUs may change later, UUIDs do not.
      if (!std::exchange(restricted_, true)) {
        TRY(restrict_to_allowed_gpus(self_.record.request, request_, gpus));
        allowed_uuids_ = self_.record.request.uuids;
      }
      const auto profiling_ticket = self_.record.is_profiling_run ? self_.ticket : std::nullopt;
      update_memory(gpus);
      const bool selector_found_too_few = request_.selector && !apply_selector(gpus);
      // The selector of a Python program may have raised an exception.
      if (request_.selector && check_interrupted()) return std::nullopt;
      if (self_.record.request.count > 1) topology_ = probe_.topology().value_or(Topology{});
      // A selector, or a driver that is asked for the topology, may take longer than a snapshot may
      // be old: then no snapshot would ever do.
      snapshot_.age_counts_from = Clock::now();
      auto decision = decide(harbour_, self_, snapshot_, topology_, lock_options_);
      if (profiling_ticket && !self_.record.is_profiling_run)
        wake_next_profile_waiter(harbour_, self_.record, *profiling_ticket);
      if (decision) archive_dead_leases(harbour_.location(), decision->dead_leases, gpus);
      if (check_interrupted()) return std::nullopt;
      if (!decision) {
        const bool is_server_unavailable = decision.error().kind == ErrorKind::unavailable;
        may_be_on_server_ = may_be_on_server_ || is_server_unavailable;
        if (pause_before_retry(decision.error())) continue;
        if (check_interrupted()) return std::nullopt;
        if (!gave_up_on_lock_ && !(is_server_unavailable && is_past_deadline()))
          return tl::make_unexpected(decision.error());
        return fail(ErrorKind::not_granted,
                    fmt::format("not granted within {}: {}", format_duration(*request_.timeout),
                                decision.error().message));
      }
      consecutive_errors_ = 0;
      if (!decision->host_view.gpus.empty() && !std::exchange(host_info_published_, true)) {
        publish_host_info(harbour_, decision->host_view, snapshot_.snapshot.driver_version);
      }
      // A selector has accepted GPUs as an earlier snapshot shows them.
      renews_snapshot_ = (decision->stale || decision->is_in_front) && !request_.selector;
      const bool waits = !decision->cancelled && !decision->impossible && !decision->granted;
      if (decision->lost_place && waits && !request_.selector) send_notice(explain_lost_place());
      if (decision->stale) {
        if (last_status_.reason.empty())
          last_status_.reason = "the harbour was busy during each attempt";
        if (is_past_deadline()) return tl::make_unexpected(make_not_granted_error(last_status_));
        rate_limiter_.wait(callbacks_.interrupt_fd);  // the next decision may be stale, too
        continue;
      }
      if (decision->cancelled) {
        return fail(ErrorKind::not_granted, "this ticket was cancelled (berth cancel)");
      }
      if (decision->impossible && selector_found_too_few) {
        const WaitStatus status = report_wait(make_selector_status(gpus.size()));
        if (!self_.may_wait || is_past_deadline())
          return tl::make_unexpected(make_not_granted_error(status));
        pause_for(kDriverPollInterval);
        continue;
      }
      if (decision->impossible) {
        return tl::make_unexpected(
            explain_impossible(*decision->impossible, self_.record.request, decision->host_view));
      }
      if (decision->granted) {
        return Lease(std::move(harbour_), std::move(self_.record), std::move(self_.bell).share(),
                     std::move(snapshot_.snapshot.gpus));
      }
      const auto start = estimate_start(*decision);
      const WaitStatus status = report_wait(
          {decision->queue_position, decision->queue_length,
           decision->recovery_time_left.count() > 0
               ? kRecoveryReason
               : explain_wait(decision->wait, self_.record.request, decision->host_view),
           start, self_.record.since, start ? std::nullopt : find_next_free_for_wait(*decision)});
      if (!self_.may_wait || is_past_deadline())
        return tl::make_unexpected(make_not_granted_error(status));
      if (!decision->is_in_front) probe_.close_session();
      wait_for_change(*decision);
      rate_limiter_.wait(callbacks_.interrupt_fd);  // any user can ring this client without end
      if (check_interrupted()) return std::nullopt;
      if (is_past_deadline()) return tl::make_unexpected(make_not_granted_error(status));
    }
  }

 private:
  Result<void> prepare_client() {
    Harbour::OwnBell bell = TRY(harbour_.make_bell(request_.preferred_id));
    self_.bell = std::move(bell.fd);
    self_.may_wait = !request_.no_wait && !(request_.timeout && request_.timeout->count() == 0);
    self_.replaced_ticket = request_.replaced_ticket;
    self_.record = make_record(request_, std::move(bell.id));
    self_.record.directory_id = harbour_.directory_id();
    return {};
  }

  Result<void> take_snapshot() {
    snapshot_.snapshot = TRY(probe_.snapshot());
    snapshot_.age_counts_from = Clock::now();
    return {};
  }

  // Reads the own bell, which other clients take for that of a stopped process if it stays unread;
  // and asks the driver again, so that this client can be granted GPUs however long the line for
  // the lock is. Not every client of a long line asks: the host would do nothing else.
  void act_while_waiting_for_lock() {
    self_.was_rung = clear_rings(self_.bell.get()) || self_.was_rung;
    if (renews_snapshot_ && Clock::now() - snapshot_.age_counts_from > kSnapshotRenewalAge)
      renews_snapshot_ = take_snapshot().has_value();
  }

  // Pauses after an error of the driver or the harbour. True: decide again; false: give up. A
  // client with a ticket keeps its place in the queue while the driver is being updated, or the
  // host is out of descriptors for a moment. For an unavailable server a client waits even without
  // a ticket.
  bool pause_before_retry(const Error& error) {
    const bool is_server_unavailable = error.kind == ErrorKind::unavailable;
    if (is_past_deadline() || !(self_.ticket || (is_server_unavailable && self_.may_wait)))
      return false;
    if (std::exchange(last_error_, error.message) != error.message) {
      send_notice(fmt::format("{}; trying again{}", error.message,
                              self_.ticket ? ", the ticket keeps its place in the queue" : ""));
    }
    // The pauses become longer, so that the clients behind this one find its bell unread and pass
    // over its ticket.
    constexpr unsigned kMaxDoublings = 3;
    const auto first =
        is_server_unavailable ? kServerRetryInterval : milliseconds(kDriverPollInterval);
    const auto spread = is_server_unavailable
                            ? milliseconds(random_() % kServerRetryInterval.count())
                            : milliseconds(0);
    pause_for(first * (1U << std::min(consecutive_errors_++, kMaxDoublings)) + spread);
    return !check_interrupted() && !is_past_deadline();
  }

  // Ends early if the client is interrupted or its timeout is over.
  void pause_for(Clock::duration length) const {
    std::vector<pollfd> poll_fds;
    if (callbacks_.interrupt_fd >= 0) poll_fds.push_back({callbacks_.interrupt_fd, POLLIN, 0});
    auto until = Clock::now() + length;
    if (deadline_) until = std::min<Clock::time_point>(until, *deadline_);
    poll_until(poll_fds, until);
  }

  // Before each decision: the profile of the job type may have changed during the wait. The request
  // asks for less than the lease reserves if this process uses a part of it already.
  void update_memory(const std::vector<Gpu>& gpus) {
    std::optional<Bytes>& memory = self_.record.request.memory;
    if (self_.lease_memory) memory = self_.lease_memory;
    if (request_.profile_options) apply_learned_profile(gpus);
    self_.lease_memory.reset();
    if (!memory || request_.memory_in_use == Bytes{}) return;
    self_.lease_memory = memory;
    memory = subtract_memory_in_use(*memory, request_.memory_in_use);
  }

  void apply_learned_profile(const std::vector<Gpu>& gpus) {
    if (!request_.profile_options->use_memory && std::exchange(profile_applied_, true)) return;
    const bool changed =
        apply_profile(self_.record, *request_.profile_options, gpus, harbour_.location());
    self_.request_changed = self_.request_changed || changed;
  }

  // Restricts the request to the GPUs that the selector accepts now. False if those are too few,
  // and could become enough. Also true if the host has too few GPUs for any selector: then the
  // scheduler refuses the request and says why.
  bool apply_selector(const std::vector<Gpu>& gpus) {
    Request& request = self_.record.request;
    const auto before = std::exchange(request.uuids, allowed_uuids_);
    intersect_allowed_gpus(request, request_.selector());
    self_.request_changed = self_.request_changed || request.uuids != before;
    const std::size_t max_available = allowed_uuids_ ? allowed_uuids_->size() : gpus.size();
    return request.uuids->size() >= request.count || max_available < request.count;
  }

  WaitStatus make_selector_status(std::size_t all) const {
    const std::size_t chosen = self_.record.request.uuids->size();
    return {0, 0,
            fmt::format("the selector accepts {} of {} GPUs now, {} requested", chosen,
                        allowed_uuids_ ? allowed_uuids_->size() : all, self_.record.request.count),
            std::nullopt, self_.record.since};
  }

  // As 'berth status' estimates it, if all tickets before this one are known.
  std::optional<TimePoint> estimate_start(const Decision& decision) const {
    const bool is_shown = self_.may_wait && callbacks_.on_wait;
    if (!is_shown || !decision.earlier_tickets) return decision.wait.expected_start;
    PlanInput input =
        make_plan_input(decision.host_view, topology_, std::chrono::system_clock::now());
    input.tickets = *decision.earlier_tickets;
    input.tickets.push_back(make_queued_ticket(self_.record, false));
    const auto start = estimate_starts(std::move(input)).back().time;
    return start ? start : decision.wait.expected_start;
  }

  // The GPU may be granted to an earlier ticket, but then the queue moves.
  std::optional<NextFree> find_next_free_for_wait(const Decision& decision) const {
    return find_next_free(decision.host_view, std::chrono::system_clock::now(),
                          &self_.record.request);
  }

  std::string explain_lost_place() const {
    const auto& memory = self_.record.request.memory;
    return fmt::format(
        "the job needs {} now, which is more than its ticket asked for; the new "
        "ticket is the last in the queue",
        memory ? format_size(*memory) + " on each GPU" : "whole GPUs");
  }

  WaitStatus report_wait(WaitStatus status) {
    if (self_.may_wait && status != last_status_ && callbacks_.on_wait) callbacks_.on_wait(status);
    last_status_ = status;
    return status;
  }

  void send_notice(const std::string& text) const {
    if (callbacks_.on_notice) callbacks_.on_notice(text);
  }

  Error make_not_granted_error(const WaitStatus& status) const {
    if (request_.no_wait || !deadline_) {
      // A script for an older tool has not written no_wait= itself.
      const bool from_command_line = request_.argument_style == ArgumentStyle::flags;
      return {ErrorKind::not_granted,
              fmt::format("not free now{}: {}", from_command_line ? " (--no-wait)" : "",
                          status.reason)};
    }
    return {ErrorKind::not_granted,
            fmt::format("not granted within {}: {}; to wait longer, increase {}",
                        format_duration(*request_.timeout), status.reason,
                        argument_name("--timeout", request_.argument_style))};
  }

  bool is_past_deadline() const { return deadline_ && Clock::now() >= *deadline_; }

  bool check_interrupted() {
    interrupted_ = interrupted_ || is_forked_child();
    if (callbacks_.interrupt_fd < 0 || interrupted_) return interrupted_;
    pollfd entry{callbacks_.interrupt_fd, POLLIN, 0};
    if (::poll(&entry, 1, 0) <= 0) return false;
    interrupted_ =
        !callbacks_.confirm_interrupt || callbacks_.confirm_interrupt() || is_forked_child();
    return interrupted_;
  }

  // A callback is the caller's code and may fork. The child then returns from the callback into
  // this loop, but the ticket and the lock belong to its parent.
  bool is_forked_child() const { return ::getpid() != own_pid_; }

  // Sleeps until something has changed that may let this client be granted GPUs. Does not say what:
  // the next decision reads everything again.
  void wait_for_change(Decision& decision) {
    if (is_forked_child()) return;
    std::vector<pollfd> poll_fds{{self_.bell.get(), POLLIN, 0}};
    if (callbacks_.interrupt_fd >= 0) poll_fds.push_back({callbacks_.interrupt_fd, POLLIN, 0});
    if (harbour_.is_multi_host() && !subscribe_to_rings(poll_fds)) return;
    for (const UniqueFd& bell : decision.neighbour_bells) poll_fds.push_back({bell.get(), 0, 0});
    const std::vector<UniqueFd> strangers = stranger_watch_.open_handles(decision);
    const auto driver_poll_interval = stranger_watch_.driver_poll_interval();
    for (const UniqueFd& stranger : strangers) poll_fds.push_back({stranger.get(), POLLIN, 0});
    const std::size_t first_lease_bell = poll_fds.size();  // the bells of leases come last
    for (const UniqueFd& bell : decision.watched_bells) poll_fds.push_back({bell.get(), 0, 0});
    auto second_watcher_due = Clock::now() + kSecondWatcherDelay;
    for (;;) {
      auto until = Clock::now() + pick_audit_interval();
      if (deadline_) until = std::min(until, *deadline_);
      if (decision.decide_again_at) until = std::min(until, *decision.decide_again_at);
      if (decision.has_unclaimed_grant && !decision.decide_again_at) {
        until = std::min(until, Clock::now() + SilentTickets::kClaimGracePeriod);
      }
      if (driver_poll_interval) until = std::min(until, Clock::now() + *driver_poll_interval);
      if (decision.recheck_after) until = std::min(until, Clock::now() + *decision.recheck_after);
      if (!decision.successor_bells.empty()) until = std::min(until, second_watcher_due);
      if (callbacks_.on_sleep) callbacks_.on_sleep();
      if (poll_with_heartbeat(poll_fds, until)) {
        const bool others_notice = !decision.is_in_front && !harbour_.is_multi_host();
        if (!others_notice || is_any_ready(poll_fds, first_lease_bell)) return;
        poll_fds.resize(first_lease_bell);
        if (poll_until(poll_fds, Clock::now() + kRecheckDelay) || !recheck_queue(decision)) return;
        for (const UniqueFd& bell : decision.watched_bells) poll_fds.push_back({bell.get(), 0, 0});
        continue;
      }
      if (callbacks_.on_time_passed) callbacks_.on_time_passed();
      const bool is_timing = decision.has_unclaimed_grant || decision.decide_again_at;
      if (!decision.successor_bells.empty() && Clock::now() >= second_watcher_due) {
        for (const UniqueFd& bell : decision.successor_bells) ring(bell.get());
        decision.successor_bells.clear();
        if (!is_timing && !driver_poll_interval && !is_past_deadline()) continue;
      }
      if (decision.is_in_front || is_past_deadline() || is_timing || driver_poll_interval ||
          decision.recheck_after)
        return;
      if (!can_keep_waiting(decision)) return;
    }
  }

  static bool is_any_ready(const std::vector<pollfd>& poll_fds, std::size_t first) {
    return std::any_of(poll_fds.begin(), poll_fds.begin() + static_cast<std::ptrdiff_t>(first),
                       [](const pollfd& one) { return one.revents != 0; });
  }

  // Called after the end of a lease, which the first two tickets of the queue notice as well. Those
  // may belong to a hostile user and not act on it. False if a ticket could be granted GPUs and has
  // not claimed them, or the check failed: then this client decides. True: `decision` has the bells
  // to watch from now on. Does not ask the driver.
  bool recheck_queue(Decision& decision) {
    LockOptions options = lock_options_;
    options.while_waiting = {};  // a ring stays in the bell, where wait_for_change() notices it
    auto recheck =
        check_for_unclaimed_grants(harbour_, self_, snapshot_.snapshot, topology_, options);
    if (!recheck || recheck->has_unclaimed_grant || recheck->is_in_front ||
        recheck->has_unwatched_leases)
      return false;
    decision.watched_bells = std::move(recheck->watched_bells);
    decision.recheck_after = recheck->recheck_after;
    return true;
  }

  // Adds the descriptor on which the server reports rings. False, after a pause, if the server
  // cannot be reached: then this client decides again.
  bool subscribe_to_rings(std::vector<pollfd>& poll_fds) {
    const auto ring_fd = harbour_.store()->listen(self_.record.id);
    if (ring_fd) {
      poll_fds.push_back({*ring_fd, POLLIN, 0});
    } else {
      pause_for(kServerRetryInterval);
    }
    return ring_fd.has_value();
  }

  // poll_until(), with the heartbeats that a harbour of several hosts requires. Also true if the
  // server has lost this client's ticket, has ended it, or does not answer.
  bool poll_with_heartbeat(std::vector<pollfd>& poll_fds, Clock::time_point until) {
    RedisHostStore* store = harbour_.store();
    if (store == nullptr) return poll_until(poll_fds, until);
    for (;;) {
      const auto heartbeat_due = last_heartbeat_ + store->heartbeat_interval();
      if (poll_until(poll_fds, std::min(until, heartbeat_due))) {
        (void)store->receive_ring();
        return true;
      }
      if (Clock::now() >= heartbeat_due) {
        last_heartbeat_ = Clock::now();
        const auto reply =
            store->send_ticket_heartbeat(self_.ticket.value_or(TicketName{0, self_.record.id}));
        if (!reply || *reply != HeartbeatReply::accepted) return true;
      }
      if (Clock::now() >= until) return false;
    }
  }

  // True if a descriptor is ready before `until`.
  static bool poll_until(std::vector<pollfd>& poll_fds, Clock::time_point until) {
    for (;;) {
      const auto left = std::chrono::ceil<milliseconds>(until - Clock::now()).count();
      const int timeout = static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000));
      const int ready = ::poll(poll_fds.data(), poll_fds.size(), timeout);
      if (ready > 0) return true;
      if (ready == 0 && left <= timeout) return false;
      // For example EINVAL: more descriptors than RLIMIT_NOFILE.
      if (ready < 0 && errno != EINTR) return false;
    }
  }

  // The audit of a client far back in the queue: whether it may go on waiting without a decision.
  // Cheap, since there may be a thousand such clients.
  bool can_keep_waiting(const Decision& decision) {
    if (decision.watches_all_leases) return false;  // no other client watches on behalf of this one
    if (!harbour_.has_bell(self_.record.id, self_.bell.get())) return false;
    if (!decision.predecessor_client) return true;
    // If the client before this one is stopped, all others before it may be stopped as well. Then
    // only this client could notice the end of a lease.
    if (!harbour_.has_ticket(*decision.predecessor) ||
        is_unresponsive(*decision.predecessor_client) ||
        self_.stopped_processes.read({decision.predecessor_client->record})) {
      return false;
    }
    // Only a decision finds stopped clients whose processes cannot be seen (containers, hidepid).
    // Clients near the front always decide, the others at random, so that few decide at any queue
    // length.
    const std::size_t position = decision.queue_position;  // may be outdated; it only becomes less
    return position > kFullAuditPositions && random_() % position >= kFullAuditPositions;
  }

  Clock::duration pick_audit_interval() {
    const milliseconds minimum = audit_interval(kMinAuditInterval);
    const milliseconds jitter = std::min(minimum, milliseconds(kAuditJitter));
    return minimum + milliseconds(static_cast<std::int64_t>(random_()) % jitter.count());
  }

  // Removes this client's files. The client behind it watches its bell and notices.
  void leave_queue() {
    if (!self_.bell || is_forked_child()) return;
    if (self_.ticket || may_be_on_server_) {
      harbour_.remove_client(self_.record.id, self_.ticket);
    } else {
      harbour_.remove_bell(self_.record.id);
    }
    self_.bell.reset();
  }

  Probe& probe_;
  Harbour harbour_;
  AcquireRequest request_;
  const AcquireCallbacks& callbacks_;
  PendingClient self_;
  TimedSnapshot snapshot_;        // of the last decision, or of the one that is being made
  bool renews_snapshot_ = false;  // while this client waits for the lock
  Topology topology_;
  LockOptions lock_options_;
  Clock::time_point start_time_ = Clock::now();
  std::optional<Clock::time_point> deadline_;
  RateLimiter rate_limiter_;
  bool restricted_ = false;  // the request names the UUIDs that the user allows
  bool profile_applied_ = false;
  bool host_info_published_ = false;
  std::optional<std::vector<std::string>> allowed_uuids_;  // before the selector is applied
  bool interrupted_ = false;
  WaitStatus last_status_;
  std::string last_error_;
  unsigned consecutive_errors_ = 0;
  bool gave_up_on_lock_ = false;   // the lock was not taken before the interrupt or the deadline
  bool may_be_on_server_ = false;  // a server whose reply was lost may have this client's ticket
  Clock::time_point last_heartbeat_ = Clock::now();
  StrangerWatch stranger_watch_;
  pid_t own_pid_ = ::getpid();
  std::minstd_rand random_{static_cast<unsigned>(own_pid_)};
};

// The owner of the directory can delete and rename the files of all users in it. Each user of such
// a harbour is warned once: a marker file in the user's own archive folder prevents a second
// warning.
std::optional<std::string> make_owner_warning(const Harbour& harbour) {
  struct stat directory_stat {};
  if (::fstat(harbour.directory(), &directory_stat) != 0) return std::nullopt;
  const uid_t owner = directory_stat.st_uid;
  if (owner == 0 || owner == ::geteuid() || !is_identified(owner)) return std::nullopt;
  if (const auto folder = open_own_folder(archive_path(harbour.location()))) {
    const std::string marker =
        fmt::format("warned-{:x}-{:x}-{}", directory_stat.st_dev, directory_stat.st_ino, owner);
    const UniqueFd file(::openat(folder->directory.get(), marker.c_str(),
                                 O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file && errno == EEXIST) return std::nullopt;
  }
  return fmt::format(
      "the harbour {} belongs to {}, who can remove the leases and tickets of other users; to make "
      "root the owner: {}",
      in_quotes(harbour.location().path), user_name(owner), setup_command(harbour.location()));
}

}  // namespace

Result<std::optional<Lease>> acquire(Probe& probe, AcquireRequest request,
                                     const AcquireCallbacks& callbacks) {
  probe.prefetch_snapshot();  // the driver works while this opens the harbour and makes the bell
  Harbour harbour = TRY(Harbour::open(request.harbour));
  const auto send_notice = [&callbacks](const std::string& text) {
    if (callbacks.on_notice) callbacks.on_notice(text);
  };
  if (const auto other = detect_private_harbour(harbour.location(), harbour.directory()))
    send_notice(*other);
  if (const auto warning = make_owner_warning(harbour)) send_notice(*warning);
  if (const auto parent = TRY(find_parent_lease(harbour, request.parent_lease))) {
    return TRY(acquire_sublease(probe, std::move(harbour), *parent, request));
  }
  if (!request.parent_lease.empty()) {
    send_notice("the lease that BERTH_LEASE names has ended; this is a new request");
    request.visible_devices.reset();  // the variable is from that lease
  }
  return AcquireLoop(probe, std::move(harbour), std::move(request), callbacks).run();
}

}  // namespace berth
