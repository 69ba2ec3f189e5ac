// Signals the processes of a job, and waits until they have ended; see end_job.h.
#include "run/end_job.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fmt/format.h>
#include <map>
#include <poll.h>
#include <set>
#include <unistd.h>
#include <utility>

#include "base/process.h"
#include "base/read_file.h"
#include "base/text.h"
#include "harbour/bell.h"
#include "harbour/harbour.h"
#include "lease/bell_holders.h"
#include "run/job_wait.h"

namespace berth {
namespace {

using Clock = std::chrono::steady_clock;

// After SIGKILL: the other processes of a job end first, so that its berth process can record that.
constexpr std::chrono::seconds kRecordTime(3);
constexpr std::chrono::seconds kKillTime(3);
constexpr std::chrono::milliseconds kCheckInterval(100);

struct JobProcesses {
  UniqueFd berth;                // the job's berth process, or the adopted one; empty if gone
  std::vector<UniqueFd> others;  // all other processes that are visible
};

// Whether the user `uid` may signal the process by the kernel's rule. Root must not signal more
// when it ends the job of a user, who can pass the bell to processes of others (SCM_RIGHTS).
bool may_signal(uid_t uid, pid_t pid) {
  const std::string text = read_proc_file(fmt::format("/proc/{}/status", pid).c_str()).value_or("");
  constexpr std::string_view kField = "\nUid:";  // real, effective and saved
  const auto begin = text.find(kField);
  if (begin == std::string::npos) return false;
  std::string_view rest = std::string_view(text).substr(begin + kField.size());
  const auto real = parse_integer<uid_t>(take_word(rest));
  (void)take_word(rest);
  const auto saved = parse_integer<uid_t>(take_word(rest));
  return real == uid || saved == uid;
}

bool is_job_process(const JobToEnd& job, pid_t pid, pid_t session) {
  const uid_t owner = job.lease ? job.lease->uid : ::geteuid();
  if (owner != 0 && !may_signal(owner, pid)) return false;
  if (job.lease && holds_bell(*job.lease, pid)) return true;
  if (session <= 0) return false;
  const auto stat = read_process_stat(pid);
  return stat && stat->session == session;
}

bool is_adopted(const JobToEnd& job) {
  return job.lease && job.lease->adopted_start;
}

// The processes that descend from `ancestor`, as /proc shows them now.
std::set<pid_t> find_descendants(pid_t ancestor) {
  std::multimap<pid_t, pid_t> children;
  for (const pid_t pid : list_processes()) {
    if (const auto stat = read_process_stat(pid)) children.emplace(stat->parent, pid);
  }
  std::set<pid_t> found;
  std::vector<pid_t> unvisited{ancestor};
  while (!unvisited.empty()) {
    const auto [first, last] = children.equal_range(unvisited.back());
    unvisited.pop_back();
    for (auto child = first; child != last; ++child) {
      if (found.insert(child->second).second) unvisited.push_back(child->second);
    }
  }
  return found;
}

// The record may name any PID: only the process that it was made for is found, and of its
// descendants those that the lease's owner may signal.
JobProcesses find_adopted_processes(const Record& lease) {
  JobProcesses found;
  if (lease.pid_namespace != pid_namespace()) return found;
  UniqueFd handle = open_process(lease.pid);
  const auto stat = read_process_stat(lease.pid);
  const auto is_signalled = [&](pid_t pid) { return lease.uid == 0 || may_signal(lease.uid, pid); };
  if (!handle || !stat || stat->start_ticks != lease.adopted_start || !is_signalled(lease.pid))
    return found;
  std::map<pid_t, UniqueFd> handles;
  for (const pid_t pid : find_descendants(lease.pid)) {
    if (pid != ::getpid()) handles.emplace(pid, open_process(pid));
  }
  for (const pid_t pid : find_descendants(lease.pid)) {
    const auto opened = handles.find(pid);
    if (opened != handles.end() && opened->second && is_signalled(pid))
      found.others.push_back(std::move(opened->second));
  }
  // Its PID meant this process above only if it still runs.
  if (has_ended(handle)) return {};
  found.berth = std::move(handle);
  return found;
}

// Handles are opened first and checked then: the PID of a handle cannot be reused.
JobProcesses find_processes(const JobToEnd& job) {
  if (is_adopted(job)) return find_adopted_processes(*job.lease);
  JobProcesses found;
  pid_t berth = 0;
  pid_t session = 0;
  if (job.detached) found.berth = open_job_process(*job.detached);
  // The berth process of a detached job leads its session. Only while it lives does the number of
  // that session surely mean this one.
  if (found.berth) berth = session = job.detached->process->pid;
  if (!found.berth && job.lease && job.lease->pid_namespace == pid_namespace()) {
    UniqueFd handle = open_process(job.lease->pid);
    if (handle && is_job_process(job, job.lease->pid, 0)) {
      berth = job.lease->pid;
      found.berth = std::move(handle);
    }
  }
  for (const pid_t pid : list_processes()) {
    if (pid == berth || pid == ::getpid() || !is_job_process(job, pid, session)) continue;
    UniqueFd handle = open_process(pid);
    if (handle && is_job_process(job, pid, session)) found.others.push_back(std::move(handle));
  }
  return found;
}

// Whether the kernel says that the job's processes are gone.
class EndWatch {
 public:
  explicit EndWatch(const JobToEnd& job) : job_(job) {
    if (!job.lease) return;
    auto harbour = Harbour::open_existing();
    if (harbour && *harbour) harbour_ = std::move(**harbour);
  }

  bool has_ended() const {
    if (job_.detached && is_job_alive(job_.detached->path)) return false;
    return !job_.lease || !is_lease_held();
  }

 private:
  bool is_lease_held() const {
    if (!harbour_) return false;
    const auto bell = open_bell(harbour_->directory(), job_.lease->id, job_.lease->uid);
    return bell && bell->state == PeerBell::State::alive;
  }

  const JobToEnd& job_;
  std::optional<Harbour> harbour_;
};

struct EndAttempt {
  const JobToEnd* job;
  EndWatch watch;
  std::optional<JobEndResult> result{};
};

bool any_left(const std::vector<EndAttempt>& attempts) {
  return std::any_of(attempts.begin(), attempts.end(),
                     [](const EndAttempt& one) { return !one.result; });
}

// Waits until all jobs have ended, or until the deadline.
void wait_for_ends(std::vector<EndAttempt>& attempts, Clock::time_point deadline,
                   JobEndResult result) {
  for (;;) {
    for (EndAttempt& one : attempts) {
      if (!one.result && one.watch.has_ended()) one.result = result;
    }
    if (!any_left(attempts) || Clock::now() >= deadline) return;
    ::poll(nullptr, 0, static_cast<int>(kCheckInterval.count()));
  }
}

void terminate(EndAttempt& attempt) {
  const JobProcesses processes = find_processes(*attempt.job);
  if (processes.berth) {
    if (send_signal(processes.berth, SIGTERM) != 0 && errno == EPERM)
      attempt.result = JobEndResult::refused;
    return;
  }
  bool refused = false;
  for (const UniqueFd& process : processes.others)
    refused = (send_signal(process, SIGTERM) != 0 && errno == EPERM) || refused;
  if (processes.others.empty() && !attempt.watch.has_ended())
    attempt.result = JobEndResult::invisible;
  if (refused) attempt.result = JobEndResult::refused;
}

void kill_processes(const EndAttempt& attempt, bool with_berth) {
  const JobProcesses processes = find_processes(*attempt.job);
  // An adopted process has nothing to record, and could start others in the place of those killed.
  if (is_adopted(*attempt.job) && processes.berth) send_signal(processes.berth, SIGKILL);
  for (const UniqueFd& process : processes.others) send_signal(process, SIGKILL);
  if (with_berth && processes.berth) send_signal(processes.berth, SIGKILL);
}

}  // namespace

std::vector<JobEndResult> end_jobs(const std::vector<JobToEnd>& jobs,
                                   std::chrono::nanoseconds grace) {
  std::vector<EndAttempt> attempts;
  attempts.reserve(jobs.size());
  for (const JobToEnd& job : jobs) attempts.push_back({&job, EndWatch(job)});
  for (EndAttempt& one : attempts) terminate(one);
  wait_for_ends(attempts, Clock::now() + grace, JobEndResult::ended);
  for (const bool with_berth : {false, true}) {
    for (const EndAttempt& one : attempts) {
      if (!one.result) kill_processes(one, with_berth);
    }
    wait_for_ends(attempts, Clock::now() + (with_berth ? kKillTime : kRecordTime),
                  JobEndResult::killed);
  }
  std::vector<JobEndResult> results;
  results.reserve(attempts.size());
  for (const EndAttempt& one : attempts)
    results.push_back(one.result.value_or(JobEndResult::alive));
  return results;
}

}  // namespace berth
