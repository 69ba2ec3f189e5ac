// Signals the processes of a job, and waits until they have ended; see end_job.h.
#include "run/end_job.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <fmt/format.h>
#include <map>
#include <poll.h>
#include <set>
#include <unistd.h>
#include <utility>

#include "base/descriptors.h"
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
constexpr std::chrono::seconds kSlowTime(1);
// For all processes of the host: users can start many that have many files open.
constexpr std::chrono::seconds kMaxSearchTime(10);

struct JobProcesses {
  UniqueFd berth;                // the job's berth process, or the adopted one; empty if gone
  std::vector<UniqueFd> others;  // all other processes that are visible
};

// The uids by which the kernel decides who may signal a process.
struct SignalUids {
  std::optional<uid_t> real;
  std::optional<uid_t> saved;

  // Root must not signal more than the owner could when it ends the job of a user, who can pass the
  // bell to processes of others (SCM_RIGHTS).
  bool permit(uid_t uid) const { return uid == 0 || real == uid || saved == uid; }
};

SignalUids read_signal_uids(pid_t pid) {
  const std::string text = read_proc_file(fmt::format("/proc/{}/status", pid).c_str()).value_or("");
  constexpr std::string_view kField = "\nUid:";  // real, effective and saved
  const auto begin = text.find(kField);
  if (begin == std::string::npos) return {};
  std::string_view rest = std::string_view(text).substr(begin + kField.size());
  const auto real = parse_integer<uid_t>(take_word(rest));
  (void)take_word(rest);
  return {real, parse_integer<uid_t>(take_word(rest))};
}

uid_t owner_of(const JobToEnd& job) {
  return job.leases.empty() ? ::geteuid() : job.leases.front().uid;
}

// A keeper holds the lease of an adopted process. Any other lease is held by its own processes,
// whatever its record says.
bool is_adopted(const JobToEnd& job) {
  return job.leases.size() == 1 && job.leases.front().adopted_start &&
         job.leases.front().holder == HolderKind::shell;
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
  const auto is_signalled = [&](pid_t pid) { return read_signal_uids(pid).permit(lease.uid); };
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

// Finds the processes of several jobs. Each process of the host is read once, however many jobs
// there are.
class ProcessSearch {
 public:
  explicit ProcessSearch(const std::vector<const JobToEnd*>& jobs) {
    for (const JobToEnd* job : jobs) {
      Search search{job};
      for (const Record& lease : job->leases) search.bells.push_back(bells_.add(lease));
      searches_.push_back(std::move(search));
    }
  }

  // If `berth_suffices`, other processes are searched only for jobs whose berth process is gone.
  std::vector<JobProcesses> run(bool berth_suffices) {
    for (Search& search : searches_) {
      if (is_adopted(*search.job)) {
        search.found = find_adopted_processes(search.job->leases.front());
        search.is_complete = true;
        continue;
      }
      find_berth(search);
      search.is_complete = berth_suffices && search.found.berth;
    }
    const bool searches_others =
        std::any_of(searches_.begin(), searches_.end(),
                    [](const Search& search) { return !search.is_complete; });
    const auto deadline = Clock::now() + kMaxSearchTime;
    for (const pid_t pid : searches_others ? list_processes() : std::vector<pid_t>()) {
      if (Clock::now() >= deadline) break;
      if (pid == ::getpid() || matches(pid).empty()) continue;
      // The PID of an open handle cannot be reused, so what it matches then is certain.
      UniqueFd handle = open_process(pid);
      if (!handle) continue;
      for (Search* search : matches(pid)) {
        UniqueFd own(::fcntl(handle.get(), F_DUPFD_CLOEXEC, 0));
        if (own) search->found.others.push_back(std::move(own));
      }
    }
    std::vector<JobProcesses> found;
    for (Search& search : searches_) found.push_back(std::move(search.found));
    return found;
  }

 private:
  struct Search {
    const JobToEnd* job;
    std::vector<std::size_t> bells{};
    pid_t berth = 0;
    pid_t session = 0;  // 0: the job has none, or the number may mean another one by now
    bool is_complete = false;
    JobProcesses found{};
  };

  void find_berth(Search& search) {
    const JobToEnd& job = *search.job;
    if (job.detached) search.found.berth = open_job_process(*job.detached);
    // The berth process of a detached job leads its session. Only while it lives does the number of
    // that session surely mean this one.
    if (search.found.berth) search.berth = search.session = job.detached->process->pid;
    if (search.found.berth || job.leases.size() != 1) return;
    const Record& lease = job.leases.front();
    const pid_t pid = lease.pid;
    UniqueFd handle = lease.pid_namespace == pid_namespace() ? open_process(pid) : UniqueFd();
    if (!handle || !read_signal_uids(pid).permit(lease.uid) || !holds_bell(lease, pid)) return;
    search.berth = pid;
    search.found.berth = std::move(handle);
  }

  // The jobs that the process belongs to, other than as their berth process.
  std::vector<Search*> matches(pid_t pid) {
    std::vector<Search*> found;
    const SignalUids uids = read_signal_uids(pid);
    const bool is_candidate = std::any_of(
        searches_.begin(), searches_.end(),
        [&](const Search& one) { return !one.is_complete && uids.permit(owner_of(*one.job)); });
    const auto stat = is_candidate ? read_process_stat(pid) : std::nullopt;
    if (!stat) return found;
    const std::vector<std::size_t> held = bells_.held_by(pid);
    for (Search& search : searches_) {
      if (search.is_complete || pid == search.berth || !uids.permit(owner_of(*search.job)))
        continue;
      const bool has_bell = std::find_first_of(search.bells.begin(), search.bells.end(),
                                               held.begin(), held.end()) != search.bells.end();
      if (has_bell || (search.session > 0 && stat->session == search.session))
        found.push_back(&search);
    }
    return found;
  }

  BellSearch bells_;
  std::vector<Search> searches_;
};

// Whether the kernel says that the processes of jobs are gone.
class EndWatch {
 public:
  EndWatch() : harbour_(Harbour::open_existing()) {}

  bool has_ended(const JobToEnd& job) const {
    if (job.detached && is_job_alive(job.detached->path)) return false;
    return std::none_of(job.leases.begin(), job.leases.end(),
                        [this](const Record& lease) { return is_lease_held(lease); });
  }

 private:
  // An error says nothing about the lease.
  bool is_lease_held(const Record& lease) const {
    if (!harbour_) return true;
    if (!*harbour_) return false;
    const auto bell = open_bell((*harbour_)->directory(), lease.id, lease.uid);
    return !bell || bell->counts_as_alive();
  }

  Result<std::optional<Harbour>> harbour_;
};

struct EndAttempt {
  const JobToEnd* job;
  std::optional<JobEndResult> result{};
};

bool any_left(const std::vector<EndAttempt>& attempts) {
  return std::any_of(attempts.begin(), attempts.end(),
                     [](const EndAttempt& one) { return !one.result; });
}

std::vector<std::string> ids_left(const std::vector<EndAttempt>& attempts) {
  std::vector<std::string> ids;
  for (const EndAttempt& one : attempts) {
    if (!one.result) ids.push_back(one.job->id);
  }
  return ids;
}

// Waits until all jobs have ended, or until the deadline.
void wait_for_ends(const EndWatch& watch, std::vector<EndAttempt>& attempts,
                   Clock::time_point deadline, JobEndResult result) {
  for (;;) {
    for (EndAttempt& one : attempts) {
      if (!one.result && watch.has_ended(*one.job)) one.result = result;
    }
    if (!any_left(attempts) || Clock::now() >= deadline) return;
    ::poll(nullptr, 0, static_cast<int>(kCheckInterval.count()));
  }
}

// Calls `act` for each job that has not ended, with its processes as they are now. For
// `berth_suffices` see ProcessSearch::run().
template <class Act>
void for_each_left(std::vector<EndAttempt>& attempts, bool berth_suffices, Act act) {
  std::vector<EndAttempt*> left;
  std::vector<const JobToEnd*> jobs;
  for (EndAttempt& one : attempts) {
    if (one.result) continue;
    left.push_back(&one);
    jobs.push_back(one.job);
  }
  if (left.empty()) return;
  const std::vector<JobProcesses> processes = ProcessSearch(jobs).run(berth_suffices);
  for (std::size_t i = 0; i < left.size(); ++i) act(*left[i], processes[i]);
}

void terminate(const EndWatch& watch, EndAttempt& attempt, const JobProcesses& processes) {
  if (processes.berth) {
    if (send_signal(processes.berth, SIGTERM) != 0 && errno == EPERM)
      attempt.result = JobEndResult::refused;
    return;
  }
  bool refused = false;
  for (const UniqueFd& process : processes.others)
    refused = (send_signal(process, SIGTERM) != 0 && errno == EPERM) || refused;
  if (processes.others.empty() && !watch.has_ended(*attempt.job))
    attempt.result = JobEndResult::invisible;
  if (refused) attempt.result = JobEndResult::refused;
}

void kill_processes(const JobToEnd& job, const JobProcesses& processes, bool with_berth) {
  // An adopted process has nothing to record, and could start others in the place of those killed.
  if (is_adopted(job) && processes.berth) send_signal(processes.berth, SIGKILL);
  for (const UniqueFd& process : processes.others) send_signal(process, SIGKILL);
  if (with_berth && processes.berth) send_signal(processes.berth, SIGKILL);
}

}  // namespace

std::vector<JobEndResult> end_jobs(const std::vector<JobToEnd>& jobs,
                                   std::chrono::nanoseconds grace, const OnSlowEnd& on_slow) {
  (void)raise_descriptor_limit();  // a handle for each process
  const EndWatch watch;
  std::vector<EndAttempt> attempts;
  attempts.reserve(jobs.size());
  for (const JobToEnd& job : jobs) attempts.push_back({&job});
  for_each_left(attempts, true, [&](EndAttempt& attempt, const JobProcesses& processes) {
    terminate(watch, attempt, processes);
  });
  const auto deadline = Clock::now() + grace;
  const auto slow_at = Clock::now() + kSlowTime;
  if (on_slow && slow_at < deadline) {
    wait_for_ends(watch, attempts, slow_at, JobEndResult::ended);
    if (any_left(attempts)) on_slow(ids_left(attempts));
  }
  wait_for_ends(watch, attempts, deadline, JobEndResult::ended);
  for (const bool with_berth : {false, true}) {
    for_each_left(attempts, false, [&](const EndAttempt& attempt, const JobProcesses& processes) {
      kill_processes(*attempt.job, processes, with_berth);
    });
    wait_for_ends(watch, attempts, Clock::now() + (with_berth ? kKillTime : kRecordTime),
                  JobEndResult::killed);
  }
  std::vector<JobEndResult> results;
  results.reserve(attempts.size());
  for (const EndAttempt& one : attempts)
    results.push_back(one.result.value_or(JobEndResult::alive));
  return results;
}

}  // namespace berth
