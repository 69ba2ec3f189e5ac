// The folders of detached jobs (`berth run -d`, `berth batch -d`), in the user's state folder.
//
//   $XDG_STATE_HOME/berth/jobs/ID/     (~/.local/state/berth/jobs/ID/)
//     spec.json      what was submitted; written once, before the job's berth process starts
//     alive          locked (flock) by that process as long as it lives: the kernel drops the lock
//     events         lines of JSON that only that process appends; see JobEvent
//     progress.json  of a batch: how many lines are done; replaced as a whole
//     output         what the job and its berth process write
//     notify.log     which notifications were sent, and why others were not; see notify_sender.h
//
// Only the user can open them. A folder without spec.json is from a process that was killed before
// the job existed. Nothing here decides about GPUs: leases and tickets are in the harbour.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "base/unique_fd.h"

namespace berth {

enum class JobKind : std::uint8_t { run, batch };

struct JobSpec {
  std::string id;  // also the id of the job's first ticket and lease
  JobKind kind = JobKind::run;
  std::vector<std::string> command;
  std::string label;
  std::string directory;  // in which the command runs
  std::string host;       // as the harbour calls it
  std::string harbour;    // the directory of the harbour
  TimePoint submitted;
  std::string line_logs{};  // of a batch: the folder with the output of its lines
  // As the user gave them by --host, where "any" stands for itself. Empty: runs on `host`.
  std::vector<std::string> remote_hosts{};
};

// The job's berth process. A PID alone may belong to another process by now.
struct JobProcess {
  pid_t pid = 0;
  std::uint64_t start_ticks = 0;    // see ProcessStat
  std::uint64_t pid_namespace = 0;  // in which `pid` is valid
};

struct JobGrant {
  std::string lease;  // the id
  std::string gpus;   // indices: "0,1"
  TimePoint at;
  std::string host{};  // of a lease on another host
};

struct JobFinish {
  TimePoint at;
  int code = 0;         // the exit code of the berth process: that of the job, or of an error
  std::string message;  // of an error, such as a request that can never be met
};

struct BatchCounts {
  std::size_t total = 0;
  std::size_t succeeded = 0;
  std::size_t failed = 0;
  std::size_t running = 0;

  bool operator==(const BatchCounts&) const = default;
};

// A job as its folder describes it.
struct DetachedJob {
  JobSpec spec;
  std::string path;       // of its folder
  bool is_alive = false;  // its berth process lives
  std::optional<JobProcess> process{};
  std::string held{};  // why it has not asked for GPUs yet; empty: it has
  // More than one if --retry-oom ran it again; those of all lines of a batch.
  std::vector<JobGrant> grants{};
  std::optional<JobFinish> finish{};
  std::optional<BatchCounts> batch{};

  std::string output_path() const { return path + "/output"; }
};

// The folder of the user's jobs, whether or not it exists. ErrorKind::io: the user has no home.
Result<std::string> jobs_path();

// A folder that is new and locked for the job's process. If nothing else is done, the job counts as
// ended without a result.
struct NewJobFolder {
  JobSpec spec;
  std::string path;
  UniqueFd alive;   // has the lock; the process that keeps it open is the job's
  UniqueFd events;  // for appending
  UniqueFd output;  // for appending
};

// Writes `spec` with a new id and the current time into a new folder.
Result<NewJobFolder> make_job_folder(JobSpec spec);

// Removes the folder of a job that was refused at once.
void remove_job_folder(const std::string& path);

// The user's jobs, in the order in which they were submitted. Folders that cannot be read are left
// out.
Result<std::vector<DetachedJob>> list_jobs();
// The same for a caller that lists them repeatedly. `known` is what the last call returned: the
// folders of jobs that had ended then do not change, and are not read again.
Result<std::vector<DetachedJob>> list_jobs(std::vector<DetachedJob> known);

// By the id of the job or of one of its leases. ErrorKind::usage if there is no such job.
Result<DetachedJob> find_job(const std::string& id);

// Whether the berth process that was started for the job lives.
bool is_job_alive(const std::string& path);

// Removes the folders of jobs that ended longer than `age` ago.
void remove_old_jobs(std::chrono::seconds age);
// Removes the folders of jobs that ended longer ago than the configuration keeps them.
void remove_expired_jobs();

}  // namespace berth
