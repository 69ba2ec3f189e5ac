// Finds a job and waits for its end; see job_wait.h.
#include "run/job_wait.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <memory>
#include <unistd.h>
#include <utility>

#include "archive/history.h"
#include "archive/user_folder.h"
#include "base/process.h"
#include "base/text.h"
#include "base/users.h"
#include "harbour/bell.h"
#include "harbour/harbour.h"
#include "lease/lease_history.h"
#include "run/other_hosts.h"

namespace berth {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kCheckInterval(1'000);
// The end of a lease is written into the history after its release: the berth process is given this
// time, in which the history is read often.
constexpr milliseconds kRecordingTime(2'000);
// On another host, whose process is not seen. A holder puts back a lease that Redis has lost at its
// next heartbeat.
milliseconds remote_recording_time() {
  const auto url = harbour_location().url;
  return kRecordingTime + (url ? url->ttl / 3 : milliseconds(0)) + std::chrono::seconds(3);
}
constexpr milliseconds kRecordingInterval(50);
constexpr milliseconds kRemoteRecordingInterval(250);
constexpr const char* kAdopted =
    "Berth did not start its process (berth adopt), and only the parent of a process gets its code";
constexpr const char* kKilled = "its berth process was killed, or the host was restarted";

// Most jobs are recent, and the whole history may be large.
constexpr std::chrono::hours kRecentHistory(24 * 31);

Error no_such_job_error(const std::string& id) {
  return {ErrorKind::usage,
          fmt::format("there is no job {}; 'berth jobs' lists them", in_quotes(id))};
}

Error not_yours_error(const std::string& id, const std::string& user) {
  return {ErrorKind::permission,
          fmt::format("job {} belongs to {}; only {} can wait for it or read its output", id,
                      printable(user), printable(user))};
}

bool is_on_this_host(const JobSpec& spec) {
  return spec.host == harbour_location().host;
}

// Without the server: only the bells are needed, which are in the directory.
HarbourLocation local_harbour(const JobSpec& spec) {
  return {spec.harbour, spec.harbour != kDefaultHarbour};
}

UniqueFd open_recorded_process(const JobProcess& recorded) {
  if (recorded.pid <= 0 || recorded.pid_namespace != pid_namespace()) return {};
  UniqueFd handle = open_process(recorded.pid);
  if (!handle) return {};
  // After the handle was opened: the PID is that of the handle's process as long as it runs.
  const auto stat = read_process_stat(recorded.pid);
  if (!stat || stat->start_ticks != recorded.start_ticks || has_ended(handle)) return {};
  return handle;
}

bool is_own_entry(const HistoryEntry& entry) {
  const uid_t uid = ::geteuid();
  return LeaseFilter{uid, user_name(uid), ""}.matches(entry.uid, entry.user, entry.host);
}

JobOutcome outcome_of(const HistoryEntry& entry) {
  switch (entry.ending) {
    case Ending::exited:
      return {entry.code, ""};
    case Ending::killed:
      return {128 + entry.code, ""};
    case Ending::released:
      if (entry.adopted) return {std::nullopt, kAdopted};
      return {0, ""};
    case Ending::running:
    case Ending::lost:
      break;
  }
  return {std::nullopt, kKilled};
}

// A ticket or lease, and its bell; without a record, there is none.
struct HarbourClient {
  std::optional<Record> record{};
  PeerBell bell{};
  std::string remote_host{};  // empty: this host
};

// A lease is preferred to a ticket, and one of this user to those of others.
Result<HarbourClient> find_remote_client(const std::string& id, const std::string& last_host,
                                         bool with_tickets) {
  HarbourClient client;
  for (RemoteClient& one : TRY(find_remote_clients(id, last_host))) {
    const bool is_lease = one.is_lease();
    if (!is_lease && !with_tickets) continue;
    const auto rank = [](const Record& record) {
      return std::pair(record.uid == ::geteuid(), !record.uuids.empty());
    };
    if (client.record && rank(*client.record) >= rank(one.record)) continue;
    client = {std::move(one.record), {}, std::move(one.host)};
  }
  return client;
}

Result<HarbourClient> find_client(const std::string& id) {
  HarbourClient client;
  std::optional<Harbour> harbour = TRY(Harbour::open_existing());
  if (!harbour) return client;
  const auto transaction = TRY(harbour->begin(LockMode::shared, {}));
  if (auto lease = TRY(transaction->read_lease(id))) client.record = std::move(lease->record);
  for (const TicketName& name : transaction->queue()) {
    if (client.record || name.id != id) continue;
    if (auto ticket = TRY(transaction->read_ticket(name)))
      client.record = std::move(ticket->record);
  }
  // Sent by another host, or another user has taken its id: then it has an id of its own.
  if (!client.record || client.record->uid != ::geteuid()) {
    for (Client& lease : TRY(transaction->read_leases())) {
      if (lease.record.job_id == id && lease.record.uid == ::geteuid())
        client.record = std::move(lease.record);
    }
  }
  if (client.record)
    client.bell = TRY(open_bell(harbour->directory(), client.record->id, client.record->uid));
  return client;
}

// The leases with this id in the history, of all users; those in the harbour are Ending::running.
// `record` is the lease or ticket that was seen before.
Result<std::vector<HistoryEntry>> read_history_of(const std::string& id,
                                                  const std::optional<Record>& record) {
  const TimePoint now = std::chrono::system_clock::now();
  const auto read = [&](TimePoint since) {
    return read_merged_history(harbour_location(), since, [&](const HistoryEntry& entry) {
      return entry.id == id || entry.job_id == id;
    });
  };
  History history = TRY(read(record ? std::min(record->since, now) : now - kRecentHistory));
  if (history.entries.empty() && !record) history = TRY(read(TimePoint{}));
  return std::move(history.entries);
}

const std::string& user_of(const HistoryEntry& entry) {
  return user_name(entry.uid, entry.user);
}

}  // namespace

int exit_code(const std::vector<JobOutcome>& outcomes) {
  const auto failed = std::find_if(outcomes.begin(), outcomes.end(),
                                   [](const JobOutcome& one) { return !one.succeeded(); });
  return failed == outcomes.end() ? 0 : exit_code(*failed);
}

Result<DetachedJob> find_detached_job(const std::optional<std::string>& id) {
  if (!id) {
    std::vector<DetachedJob> jobs = TRY(list_jobs());
    if (!jobs.empty()) return std::move(jobs.back());
    return fail(ErrorKind::usage,
                "you have no detached jobs; to start one: berth run -d -- python train.py");
  }
  auto job = find_job(*id);
  if (job || job.error().kind != ErrorKind::usage) return job;
  TRY(JobWatch::open(*id));  // its errors are more precise
  return fail(ErrorKind::usage,
              fmt::format("job {} was not started with -d, so Berth has not kept its output", *id));
}

UniqueFd open_job_process(const DetachedJob& job) {
  if (!job.process || !is_on_this_host(job.spec)) return {};
  return open_recorded_process(*job.process);
}

PeerBell open_held_bell(const DetachedJob& job) {
  if (!is_on_this_host(job.spec) || job.spec.harbour.empty()) return {};
  const auto harbour = Harbour::open_existing(local_harbour(job.spec));
  if (!harbour || !*harbour) return {};
  // The process may have been killed after the grant and before it was recorded: the lease then has
  // the id of the job.
  std::vector<std::string> ids{job.spec.id};
  for (const JobGrant& grant : job.grants) ids.push_back(grant.lease);
  for (const std::string& id : ids) {
    auto bell = open_bell((*harbour)->directory(), id, ::geteuid());
    if (!bell) return {PeerBell::State::unknown, {}, bell.error().message};
    if (bell->counts_as_alive()) return std::move(*bell);
  }
  return {};
}

std::optional<JobOutcome> find_outcome(const DetachedJob& job) {
  if (job.finish) return JobOutcome{job.finish->code, job.finish->message};
  if (job.is_alive || open_held_bell(job).counts_as_alive()) return std::nullopt;
  return JobOutcome{std::nullopt, kKilled};
}

Result<JobWatch> JobWatch::open(const std::string& id) {
  if (!is_id(id)) return tl::make_unexpected(no_such_job_error(id));
  JobWatch job(id);
  const auto detached = find_job(id);  // a user without a home folder has other jobs
  job.detached_ = detached.has_value();
  if (detached) {
    job.id_ = detached->spec.id;
  } else {
    job.outcome_ = TRY(job.check_harbour());
  }
  return job;
}

void JobWatch::watch(UniqueFd handle, short events, std::optional<milliseconds> interval) {
  handle_ = std::move(handle);
  events_ = events;
  interval_ = interval;
}

void JobWatch::watch_bell(PeerBell bell) {
  const bool can_watch = static_cast<bool>(bell.write_end);
  // POLLERR, at the death of the last holder, is always reported.
  watch(std::move(bell.write_end), 0, can_watch ? std::nullopt : std::optional(kCheckInterval));
}

Result<std::optional<JobOutcome>> JobWatch::check() {
  if (outcome_) return outcome_;
  auto outcome = detached_ ? check_detached() : check_harbour();
  if (!outcome && outcome.error().kind == ErrorKind::unavailable && record_) {
    gone_since_.reset();
    watch({}, 0, kCheckInterval);  // the server comes back, and the job goes on meanwhile
    return std::nullopt;
  }
  outcome_ = TRY(std::move(outcome));
  return outcome_;
}

Result<std::optional<JobOutcome>> JobWatch::check_detached() {
  for (;;) {
    const auto job = find_job(id_);
    if (!job) return JobOutcome{std::nullopt, "its folder was removed"};
    if (job->finish) return find_outcome(*job);
    if (!job->is_alive) {
      PeerBell bell = open_held_bell(*job);
      const bool is_held = bell.counts_as_alive();
      // The other host may have recorded how the job ended. A ticket without its process leaves.
      if (!is_held && !job->spec.remote_hosts.empty()) return check_harbour(false);
      if (!is_held) return JobOutcome{std::nullopt, kKilled};
      watch_bell(std::move(bell));
      return std::nullopt;
    }
    if (UniqueFd process = open_job_process(*job)) {
      watch(std::move(process), POLLIN, std::nullopt);
      return std::nullopt;
    }
    if (!is_job_alive(job->path)) continue;  // it has ended since it was read
    watch({}, 0, kCheckInterval);
    return std::nullopt;
  }
}

// A ticket or lease in the harbour; without one, the history.
Result<std::optional<JobOutcome>> JobWatch::check_harbour(bool with_tickets) {
  HarbourClient client = TRY(find_client(id_));
  if (!client.record) client = TRY(find_remote_client(id_, remote_host_, with_tickets));
  if (!client.record) return check_history();
  if (client.record->uid != ::geteuid()) {
    // Another user can take the id of a job that has ended: the own history comes first.
    const uid_t other = client.record->uid;
    auto own = check_history();
    if (own || own.error().kind != ErrorKind::usage) return own;
    return tl::make_unexpected(not_yours_error(id_, user_name(other)));
  }
  gone_since_.reset();
  remote_host_ = std::move(client.remote_host);
  // The end of a shell's lease is recorded by its keeper, not by the shell.
  const bool is_recorder = client.record->holder == HolderKind::job;
  if (!remote_host_.empty()) {
    process_.reset();
  } else if (!process_ && is_recorder && client.record->pid_namespace == pid_namespace()) {
    process_ = open_process(client.record->pid);
  }
  record_ = std::move(client.record);
  watch_bell(std::move(client.bell));
  return std::nullopt;
}

JobOutcome JobWatch::outcome_without_entry() const {
  const bool was_lease = !record_ || !record_->uuids.empty();
  return {std::nullopt, was_lease ? kKilled : "its ticket left the queue without a grant"};
}

Result<std::optional<JobOutcome>> JobWatch::check_history() {
  const auto now = Clock::now();
  const bool is_first = !gone_since_;
  if (is_first) gone_since_ = now;
  // A process that has ended writes nothing any more. It is asked before the history is read.
  const bool is_remote = !remote_host_.empty();
  const bool is_final =
      (process_ && has_ended(process_)) ||
      now - *gone_since_ >= (is_remote ? remote_recording_time() : kRecordingTime);
  const std::vector<HistoryEntry> entries = TRY(read_history_of(id_, record_));
  // The last one, if --retry-oom ran it several times.
  const auto own = std::find_if(entries.rbegin(), entries.rend(), is_own_entry);
  if (own == entries.rend() && !record_ && !detached_) {
    return tl::make_unexpected(entries.empty() ? no_such_job_error(id_)
                                               : not_yours_error(id_, user_of(entries.front())));
  }
  if (own != entries.rend() && (own->ending != Ending::running && own->ending != Ending::lost))
    return outcome_of(*own);
  if (is_final) return own != entries.rend() ? outcome_of(*own) : outcome_without_entry();
  watch({}, 0, is_remote ? kRemoteRecordingInterval : kRecordingInterval);
  return std::nullopt;
}

Result<std::optional<EndedJob>> wait_for_any_job(std::span<JobWatch> jobs, const Deadline& deadline,
                                                 int interrupt_fd) {
  for (;;) {
    std::vector<pollfd> entries{{interrupt_fd, POLLIN, 0}};
    std::optional<milliseconds> pause;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (const auto outcome = TRY(jobs[i].check())) return EndedJob{i, *outcome};
      entries.push_back(jobs[i].poll_entry());
      const auto interval = jobs[i].check_interval();
      if (interval) pause = std::min(pause.value_or(*interval), *interval);
    }
    if (deadline) {
      const auto left =
          std::chrono::ceil<milliseconds>(*deadline - std::chrono::steady_clock::now());
      if (left.count() <= 0) return std::nullopt;
      pause = std::min(pause.value_or(left), left);
    }
    // A later deadline than poll() can wait for is reached by several rounds.
    constexpr milliseconds kMaxPause(std::chrono::hours(1));
    if (pause) pause = std::min(*pause, kMaxPause);
    const int ms = pause ? static_cast<int>(pause->count()) : -1;
    if (::poll(entries.data(), entries.size(), ms) < 0) {
      if (errno == EINTR) continue;
      return fail(ErrorKind::io, fmt::format("cannot wait: {}", std::strerror(errno)));
    }
    if (entries[0].revents != 0) return std::nullopt;
  }
}

Result<std::optional<JobOutcome>> wait_for_job(const std::string& id, const Deadline& deadline,
                                               int interrupt_fd) {
  JobWatch job = TRY(JobWatch::open(id));
  auto ended = TRY(wait_for_any_job({&job, 1}, deadline, interrupt_fd));
  if (!ended) return std::nullopt;
  return std::move(ended->outcome);
}

}  // namespace berth
