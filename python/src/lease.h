// A lease that a Python program holds, and how it gets one.
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

// Safe for several threads. In a fork of the process that made it, it can only be let go.
class PythonLease {
 public:
  PythonLease(Lease lease, SamplingRate sampling_rate);

  const Record& record() const { return record_; }
  const std::vector<Gpu>& host_gpus() const { return host_gpus_; }
  const HarbourLocation& location() const { return location_; }
  // The bell that programs inherit; -1 once it is released.
  int bell_fd() const { return bell_fd_; }

  // What it was used for went wrong, with these words of an error: it teaches nothing, unless they
  // say that the memory did not suffice.
  void record_failure(const std::string& error_text);
  // Others of its type wait until it has been measured.
  bool is_profiling_run() const { return record_.is_profiling_run; }

  // Whether it is time to ask the driver about its GPUs, which takes place without any lock.
  std::chrono::milliseconds time_until_sample();
  void add_sample(const Result<std::vector<GpuSample>>& samples);
  SamplingRate sampling_rate() const { return sampling_rate_; }

  // False if others hold it still. In a fork: lets go of the fork's own hold.
  bool release();

  // As the history has it now; nothing once it was released.
  std::optional<HistoryEntry> current_history_entry(Ending ending);

  // Says that it lives, where that must be said; see Lease::keep(). Not in a fork.
  std::chrono::milliseconds maintain_heartbeat();
  // Puts the lease back if somebody deleted its files, and notes it. Not in a fork.
  void restore_if_deleted();
  // Tells when that may be needed; -1 if nothing does.
  int deletion_watch_fd();
  // What happened to it since the last time, for a log.
  std::vector<std::string> notices();

 private:
  HistoryEntry current_history_entry_locked(Ending ending) const REQUIRES(mutex_);
  void record_profile_run() REQUIRES(mutex_);
  Usage usage() const REQUIRES(mutex_) { return sampler_ ? sampler_->usage() : Usage{}; }
  void set_inheritable_bell(UniqueFd bell) REQUIRES(mutex_);
  void release_in_fork();

  mutable Mutex mutex_;
  Lease lease_ GUARDED_BY(mutex_);
  // Parts of the lease that never change.
  const Record& record_;
  const std::vector<Gpu>& host_gpus_;
  const HarbourLocation& location_;
  const SamplingRate sampling_rate_;
  std::optional<Sampler> sampler_
      GUARDED_BY(mutex_);  // since the first look: most leases are short
  ExitClass exit_class_ GUARDED_BY(mutex_) = ExitClass::success;
  const std::chrono::steady_clock::time_point start_time_ = std::chrono::steady_clock::now();
  UniqueFd inheritable_bell_ GUARDED_BY(mutex_);
  std::atomic<int> bell_fd_ = -1;  // its number
  std::vector<std::string> notices_ GUARDED_BY(mutex_);
  const pid_t owner_pid_;
  bool released_ GUARDED_BY(mutex_) = false;
};

// Gives up the close-on-exec flag: programs that this process starts have it open, too.
int make_inheritable(UniqueFd fd);

void define_lease(nanobind::module_& module);

}  // namespace berth::python
