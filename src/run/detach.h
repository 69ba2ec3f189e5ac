// Detached jobs: a berth process of its own session that the user's terminal does not affect.
//
// The process that the user started makes the job's folder (job_folder.h), forks, waits until the
// job is in the queue or was refused, and returns. The child continues with the command. There is
// no daemon: the child waits, runs the job and ends with it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "lease/lease.h"
#include "profile/learning.h"
#include "run/job_folder.h"
#include "run/wait_display.h"

namespace berth {

// What the child writes into the job's folder. An object without a folder does nothing, so that a
// job on the user's terminal runs through the same code.
class JobRecorder {
 public:
  JobRecorder() = default;
  JobRecorder(NewJobFolder folder, UniqueFd ready);

  bool is_active() const { return static_cast<bool>(folder_.events); }
  // The id that the job's first ticket should have; empty without a folder.
  const std::string& id() const { return folder_.spec.id; }
  const std::string& path() const { return folder_.path; }

  // Lets the process that the user started return.
  void report_ready();
  // The process that the user started shows what a refused job has printed. So its socket must not
  // be closed before this process ends.
  void keep_ready_until_exit();
  // Why the job does not ask for GPUs yet, such as "waits for job k3f9a2mx to end".
  void write_held(const std::string& reason);
  // Report the wait only in the harbour; empty without a folder.
  WaitCallbacks wait_callbacks();
  void write_granted(Lease& lease, const std::optional<ProfileOptions>& options);
  // Another host granted GPUs and runs the job.
  void write_remote_granted(const std::string& lease, const std::string& host);
  // A line of a batch was granted GPUs ("0,1").
  void write_line_granted(const std::string& lease, const std::string& gpus);
  void write_progress(const BatchCounts& counts);
  void write_finished(int code, const std::string& message);

 private:
  void write_event(Json event);

  NewJobFolder folder_;
  std::optional<BatchCounts> last_counts_;
  UniqueFd ready_;  // a socket to the process that the user started
};

// The specification of a job of this process's user, folder and harbour; make_job_folder() adds the
// id.
JobSpec make_job_spec(JobKind kind, std::vector<std::string> command, std::string label);

// Runs `body` in a detached process, and returns in both processes: in the one that the user
// started, the exit code for the shell (0, or that of a job that was refused at once); in the
// detached one, the result of `body`.
Result<int> run_detached(JobSpec spec, const std::function<Result<int>(JobRecorder&)>& body);

}  // namespace berth
