// Reports the events of a `berth run` to the `berth batch` that started it, as lines of JSON.
#pragma once

#include <optional>

#include "lease/lease.h"
#include "profile/learning.h"
#include "run/attempt.h"
#include "run/wait_display.h"

namespace berth {

// The events: {"event": "waiting", "reason", "starts_s" (since 1970, if an estimate exists)},
// {"event": "notice", "text"},
// {"event": "granted", "lease", "gpus": "0,1", "reserved" (with --mem auto: how much, and why)},
// {"event": "ended", "out_of_memory"}.
class RunEventWriter {
 public:
  // Writes to `fd`, which the job does not inherit. -1: every call does nothing.
  explicit RunEventWriter(int fd);

  // Report the wait instead of displaying it; empty if there is no reader.
  WaitCallbacks wait_callbacks() const;
  void write_granted(Lease& lease, const std::optional<ProfileOptions>& options) const;
  void write_ended(const AttemptResult& end) const;

 private:
  int fd_;
};

}  // namespace berth
