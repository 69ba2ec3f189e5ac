// `berth cancel`: finds what the user wants to end, and ends it, whatever it is: a waiting ticket
// leaves the queue, the lease of a shell is released, a running job (or the process that a lease
// adopted) gets SIGTERM and, after a grace time, SIGKILL.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/result.h"
#include "run/end_job.h"

namespace berth {

// Between SIGTERM and SIGKILL.
constexpr std::chrono::seconds kDefaultGrace(10);

struct CancelSelection {
  std::vector<std::string> ids;
  std::string label;          // not empty: those of this user with this label
  bool all = false;           // those of this user; for root, those of all users
  bool mine = false;          // those of this user
  bool only_waiting = false;  // leave out what has GPUs
  // Detached jobs to leave out: they run on other hosts (cluster/remote/cancel_remote.h).
  std::vector<std::string> elsewhere{};
};

enum class CancelKind : std::uint8_t { ticket, shell_lease, job };

struct CancelledJob {
  std::string id;
  CancelKind kind = CancelKind::job;
  JobEndResult end = JobEndResult::ended;  // of a job
  bool was_waiting = false;                // a detached job that had no GPUs yet
};

// Whether it has ended.
bool is_done(const CancelledJob& job);
// One line: what became of it, or why it could not be ended.
std::string describe_end(const CancelledJob& job, std::chrono::nanoseconds grace);

// Checks everything before it ends anything: if one of `ids` is refused, nothing is ended.
// ErrorKind::usage: there is no such job, or it has ended. ErrorKind::permission: it belongs to
// another user. Returns what was ended; empty if the selection has nothing.
Result<std::vector<CancelledJob>> cancel(const CancelSelection& selection,
                                         std::chrono::nanoseconds grace,
                                         const OnSlowEnd& on_slow = {});

}  // namespace berth
