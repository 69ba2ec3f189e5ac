// One attempt to run a job under a lease: start the job, supervise it, measure what it uses,
// release the lease, and record the outcome.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "base/signals.h"
#include "devices/probe.h"
#include "lease/lease.h"
#include "profile/learning.h"
#include "profile/usage.h"
#include "run/job.h"
#include "run/notification.h"

namespace berth {

struct AttemptOptions {
  bool show_uuids = false;  // the job gets UUIDs instead of indices
  std::string gpu_token;  // text in the command to replace by the indices of the GPUs; empty: none
  bool use_placeholder = false;
  bool whole_group = false;  // see JobHooks
  int lifeline = -1;         // see JobHooks
  // Record the outcome of a short or failed run too: the user named the job's type, or wants its
  // memory learned (--mem auto).
  bool always_record = false;
  // Of a detached job; -1: none. See output_limit.h.
  int bounded_output = -1;
  Bytes output_limit{};
  // Called when the user is to be told something while the job runs. With `stranger` and `gpu_lost`
  // from the first sample that shows it on, again and again. Empty: not called.
  std::function<void(const JobAlert& alert)> on_alert{};
  // How long before the announced end, and after which idle time, it is called; nullopt: never.
  std::optional<std::chrono::nanoseconds> alert_before_end{};
  std::optional<std::chrono::nanoseconds> alert_idle{};
};

struct AttemptResult {
  int code = 0;              // the exit code of `berth run`
  bool ran = false;          // false: it could not be started, or a signal arrived before the start
  bool interrupted = false;  // a signal or the end of the lifeline asked it to end
  ExitClass exit_class = ExitClass::failure;
  bool has_stderr_tail = false;  // its stderr could be read, and counts in exit_class
  Usage usage{};
  std::optional<Bytes> reserved{};  // on each GPU; nullopt: the GPUs were exclusive
  std::optional<int> signal{};      // that ended the job
  std::chrono::nanoseconds run_time{};
};

// Releases `lease` in every case, and prints problems to stderr. If processes of the job still hold
// the lease, it stays until they end. `signals` must queue SIGCHLD and all signals that end a job.
AttemptResult run_attempt(Probe& probe, Lease lease, Job job, const AttemptOptions& options,
                          SignalQueue& signals);

}  // namespace berth
