// A lease that a Python program holds, and the functions that acquire it.
#pragma once

#include <atomic>
#include <chrono>
#include <nanobind/nanobind.h>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "lease/lease.h"
#include "lease/lease_history.h"
#include "profile/learning.h"
#include "run/sampler.h"

namespace berth::python {

// Thread-safe. In a fork of the process that made it, only release() has an effect.
class PythonLease {
 public:
  // `profile_options`: those of the request.
  PythonLease(Lease lease, SamplingRate sampling_rate,
              std::optional<ProfileOptions> profile_options);

  const Record& record() const { return record_; }
  const std::vector<Gpu>& host_gpus() const { return host_gpus_; }
  const HarbourLocation& location() const { return location_; }
  // The descriptor of the bell that child programs inherit; -1 after the release.
  int bell_fd() const { return bell_fd_; }

  // The code that used the lease failed with this error. The run then does not count for the
  // profile, unless the error says that GPU memory ran out.
  void record_failure(const std::string& error_text);
  // Other threads start processes, which have all descriptors of this process until their exec:
  // release() waits a moment for these.
  void set_other_threads_fork() {
    const MutexLock lock(mutex_);
    other_threads_fork_ = true;
  }
  // Whether other tickets of the job's type wait until this run has been measured.
  bool is_profiling_run() const { return record_.is_profiling_run; }

  // Time until the next sample is due; zero or less: now. The caller then queries the driver,
  // without a lock, and passes the answer to add_sample().
  std::chrono::milliseconds time_until_sample();
  void add_sample(const Result<std::vector<GpuSample>>& samples);
  SamplingRate sampling_rate() const { return sampling_rate_; }

  // False if other processes still hold the lease. In a fork: closes the fork's own copy of the
  // bell.
  bool release();

  // The lease as an entry of the history; nullopt after the release.
  std::optional<HistoryEntry> current_history_entry(Ending ending);

  // See Lease::maintain_heartbeat(). Not in a fork.
  std::chrono::milliseconds maintain_heartbeat();
  // Restores the lease if its files were deleted, and adds a notice. Not in a fork.
  void restore_if_deleted();
  // Readable when the files may have been deleted; -1 if there is no watch.
  int deletion_watch_fd();
  // What was granted after a wait, in words: "granted GPU 2 after 3h 12m".
  std::string describe_grant();
  // Messages for the user since the last call.
  std::vector<std::string> notices();

 private:
  HistoryEntry current_history_entry_locked(Ending ending) const REQUIRES(mutex_);
  void record_profile_run() REQUIRES(mutex_);
  Usage usage() const REQUIRES(mutex_) { return sampler_ ? sampler_->usage() : Usage{}; }
  void set_inheritable_bell(UniqueFd bell) REQUIRES(mutex_);
  void release_in_fork();

  mutable Mutex mutex_;
  Lease lease_ GUARDED_BY(mutex_);
  // Parts of lease_ that never change, and so need no lock.
  const Record& record_;
  const std::vector<Gpu>& host_gpus_;
  const HarbourLocation& location_;
  const SamplingRate sampling_rate_;
  const std::optional<ProfileOptions> profile_options_;
  std::optional<Sampler> sampler_ GUARDED_BY(mutex_);  // made late: most leases are short
  ExitClass exit_class_ GUARDED_BY(mutex_) = ExitClass::success;
  bool other_threads_fork_ GUARDED_BY(mutex_) = false;
  const std::chrono::steady_clock::time_point start_time_ = std::chrono::steady_clock::now();
  UniqueFd inheritable_bell_ GUARDED_BY(mutex_);
  std::atomic<int> bell_fd_ = -1;  // of inheritable_bell_
  std::vector<std::string> notices_ GUARDED_BY(mutex_);
  const pid_t owner_pid_;
  bool released_ GUARDED_BY(mutex_) = false;
};

// Clears the close-on-exec flag, so that child programs inherit the descriptor. The caller owns it.
int make_inheritable(UniqueFd fd);

void define_lease(nanobind::module_& module);

}  // namespace berth::python
