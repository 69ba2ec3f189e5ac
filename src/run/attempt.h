// One attempt to run a job under a lease: started, watched, measured, released, and told of.
#pragma once

#include <optional>
#include <string>

#include "base/signals.h"
#include "devices/probe.h"
#include "lease/lease.h"
#include "profile/learning.h"
#include "profile/usage.h"
#include "run/job.h"

namespace berth {

struct AttemptOptions {
  bool show_uuids = false;  // the job sees UUIDs
  std::string gpu_token;    // replaced by the indices of the GPUs, in the command
  bool use_placeholder = false;
  bool whole_group = false;    // see JobHooks
  int lifeline = -1;           // see JobHooks
  bool always_record = false;  // the type was named, or its memory is to be learned: however short
};

struct AttemptResult {
  int code = 0;              // the exit code to pass on
  bool ran = false;          // else it could not be started, or was interrupted before
  bool interrupted = false;  // it was asked to end
  ExitClass exit_class = ExitClass::failure;
  bool has_stderr_tail = false;  // its last words count in the verdict
  Usage usage{};
  std::optional<Bytes> reserved{};  // on each GPU; nothing: it had them alone
};

AttemptResult run_attempt(Probe& probe, Lease lease, Job job, const AttemptOptions& options,
                          SignalQueue& signals);

}  // namespace berth
