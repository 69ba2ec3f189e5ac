// Ends running jobs from another process: SIGTERM, time to end, SIGKILL.
//
// The processes of a job are those that hold the bell of its lease, and for a detached job those of
// its session. The berth process of the job gets the first signal and passes it on, as it does for
// a signal of the terminal; so it records how the job ended. If that process is gone, the others
// get the signal themselves. Of an adopted lease, they are the process that it was made for and the
// descendants of that process: the bell is held by the keeper, which ends after them.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harbour/record.h"
#include "run/job_folder.h"

namespace berth {

// A job to end: a lease, a detached job, or both. A batch has several leases.
struct JobToEnd {
  std::string id;
  std::vector<Record> leases{};
  std::optional<DetachedJob> detached{};
};

enum class JobEndResult : std::uint8_t {
  ended,      // by SIGTERM, or by itself
  killed,     // by SIGKILL
  invisible,  // no process of the job is visible here: another PID namespace
  refused,    // the kernel does not let this user signal the processes
  alive,      // a process does not end even by SIGKILL: it hangs in the kernel
};

// Called once, when some jobs have not ended a second after SIGTERM: with their ids.
using OnSlowEnd = std::function<void(const std::vector<std::string>& ids)>;

// Ends all jobs at once, and returns what became of each, in their order. Takes up to `grace`, and
// some seconds more for a process that has to be killed. The caller has checked that the user may
// end these jobs; the kernel checks it again.
std::vector<JobEndResult> end_jobs(const std::vector<JobToEnd>& jobs,
                                   std::chrono::nanoseconds grace, const OnSlowEnd& on_slow = {});

}  // namespace berth
