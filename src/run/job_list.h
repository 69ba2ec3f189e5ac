// The list of `berth jobs`: detached jobs, tickets, leases and the history as one list of jobs.
//
// A job of several sources is listed once: by the folder of a detached job, else by its ticket or
// lease, else by its history. Texts of other users are not escaped.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <sys/types.h>
#include <vector>

#include "archive/history.h"
#include "base/time.h"
#include "run/job_folder.h"
#include "status/status.h"

namespace berth {

enum class JobState : std::uint8_t {
  held,     // has not asked for GPUs: waits for another job, or for a time
  waiting,  // has a ticket
  running,
  ended,
};

enum class JobOrigin : std::uint8_t { run, batch, shell, adopted };

const char* state_name(JobState state);     // "held"
const char* origin_name(JobOrigin origin);  // "run"

struct JobInfo {
  std::string id;
  std::string user;
  std::string host;  // that runs or ran it; empty: unknown, or not decided yet
  std::vector<std::string> queue_hosts{};  // of a waiting job: in whose queues its ticket is
  bool is_own = false;
  bool is_detached = false;
  JobOrigin origin = JobOrigin::run;
  JobState state = JobState::ended;
  std::string command;
  std::string label;
  std::vector<std::string> leases{};  // the ids of the leases that it has or had
  std::vector<std::string> gpus{};    // indices; a UUID if the index is unknown
  TimePoint submitted;
  std::optional<TimePoint> started{};  // of its last lease
  std::optional<TimePoint> ended{};    // nullopt: it has not ended, or it is unknown when
  std::optional<LeaseEnd> expected_end{};
  std::optional<TimePoint> expected_start{};
  std::optional<std::size_t> position{};  // in the queue, from 1
  std::optional<int> exit_code{};         // nullopt: it has not ended, has none, or it is unknown
  bool is_released = false;  // a lease that ended by `berth release` or with its process
  std::string reason{};  // why it waits, why its exit code is unknown, or the error that ended it
  std::optional<BatchCounts> batch{};
  std::string output{};  // the file; empty: Berth does not keep the output

  bool is_active() const { return state != JobState::ended; }
  // When the state began; nullopt: unknown.
  std::optional<TimePoint> state_since() const;
};

// What the list is made of. Reads nothing itself, so that it can be tested.
struct JobSources {
  std::vector<DetachedJob> detached;  // those of `viewer`
  std::vector<Record> leases;
  std::vector<TicketStatus> queue;
  std::vector<Status> other_hosts{};  // only their leases and queues are used
  std::vector<HistoryEntry> history;
  // The ids of detached jobs whose berth process was killed and whose processes hold a lease.
  std::set<std::string> held_jobs{};
  std::map<std::string, std::string> gpu_indices;  // by UUID
  std::string host;                                // this one
  std::string harbour{};                           // the directory of the harbour
  uid_t viewer = 0;
  TimePoint now;
  std::uint64_t pid_namespace = 0;
  // The parent of a process of the viewer; 0: unknown. The lines of a batch are found by it.
  std::function<pid_t(pid_t)> parent_of;
};

// In the order in which the jobs were submitted.
std::vector<JobInfo> merge_jobs(const JobSources& sources);

}  // namespace berth
