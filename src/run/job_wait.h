// Waits for the end of the user's jobs: detached jobs by their folders, other jobs by their
// tickets, leases and history.
//
// A job has ended when its berth process has, or (if that process was killed) when no process of
// the job holds the lease. A JobWatch polls only where the kernel reports nothing.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <poll.h>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "harbour/bell.h"
#include "harbour/record.h"
#include "run/job_folder.h"

namespace berth {

struct JobOutcome {
  std::optional<int> code;  // as of `berth run`: 128+N for signal N; nullopt: unknown
  std::string why;          // why the code is unknown, or the error that ended the job; or empty

  bool succeeded() const { return code == 0; }
};

// The user's detached job with this id; without an id, the one that was submitted last.
// ErrorKind::usage: there is no such job, or it is not detached. ErrorKind::permission: it is
// another user's.
Result<DetachedJob> find_detached_job(const std::optional<std::string>& id);

// The exit code of `berth wait` and `berth attach` for a job whose exit code is unknown.
constexpr int kExitUnknown = 70;
inline int exit_code(const JobOutcome& outcome) {
  return outcome.code.value_or(kExitUnknown);
}
// Of several jobs, in the order given: that of the first that has not succeeded; else 0.
int exit_code(const std::vector<JobOutcome>& outcomes);

// A pidfd of the job's berth process, as its folder recorded it. Empty if the process has ended, or
// runs on another host or in another PID namespace.
UniqueFd open_job_process(const DetachedJob& job);

// The bell of a lease that processes of the job hold, after its berth process was killed. Its write
// end has POLLERR when the last of them has ended. State::dead: no process holds a lease.
PeerBell open_held_bell(const DetachedJob& job);

// What became of a detached job; nullopt: it has not ended.
std::optional<JobOutcome> find_outcome(const DetachedJob& job);

// A job of this user that is watched until it ends. The job may have ended before.
class JobWatch {
 public:
  // ErrorKind::usage: there is no such job. ErrorKind::permission: it is another user's.
  static Result<JobWatch> open(const std::string& id);

  const std::string& id() const { return id_; }
  // nullopt: the job has not ended. The caller then waits for poll_entry(), at most for
  // check_interval(), and calls this again.
  Result<std::optional<JobOutcome>> check();
  // After check(): the descriptor that reports a change; -1: nothing does.
  pollfd poll_entry() const { return {handle_ ? handle_.get() : -1, events_, 0}; }
  // After check(): how long to wait at most; nullopt: poll_entry() reports every change.
  std::optional<std::chrono::milliseconds> check_interval() const { return interval_; }

 private:
  using Clock = std::chrono::steady_clock;

  explicit JobWatch(std::string id) : id_(std::move(id)) {}
  void watch_bell(PeerBell bell);
  void watch(UniqueFd handle, short events, std::optional<std::chrono::milliseconds> interval);
  Result<std::optional<JobOutcome>> check_detached();
  // Without `with_tickets`, a ticket on another host does not count.
  Result<std::optional<JobOutcome>> check_harbour(bool with_tickets = true);
  Result<std::optional<JobOutcome>> check_history();
  JobOutcome outcome_without_entry() const;

  std::string id_;
  bool detached_ = false;
  std::optional<JobOutcome> outcome_;
  UniqueFd handle_;
  short events_ = 0;
  std::optional<std::chrono::milliseconds> interval_;
  // Of a job without a folder:
  std::optional<Record> record_;  // its ticket or lease, when it was last seen
  std::string remote_host_;       // that of the record; empty: this host
  UniqueFd process_;              // that of the record
  std::optional<Clock::time_point> gone_since_;
};

// The first of `jobs` that has ended.
struct EndedJob {
  std::size_t index;
  JobOutcome outcome;
};
using Deadline = std::optional<std::chrono::steady_clock::time_point>;
// nullopt: `interrupt_fd` is readable (-1: there is none), or the time is over.
Result<std::optional<EndedJob>> wait_for_any_job(std::span<JobWatch> jobs, const Deadline& deadline,
                                                 int interrupt_fd);

// The same for one job. Errors are those of JobWatch::open().
Result<std::optional<JobOutcome>> wait_for_job(const std::string& id, const Deadline& deadline,
                                               int interrupt_fd);

}  // namespace berth
