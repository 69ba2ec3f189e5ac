// How `berth run` tells a `berth batch` that has called it what happens: a line of JSON for each
// event.
#pragma once

#include "lease/lease.h"
#include "run/attempt.h"
#include "run/wait_display.h"

namespace berth {

// The events: {"event": "waiting", "reason"}, {"event": "notice", "text"},
// {"event": "granted", "lease", "gpus": "0,1"}, {"event": "ended", "out_of_memory"}.
class RunEventWriter {
 public:
  // Writes to `fd`, which is closed for the job; -1: tells nobody.
  explicit RunEventWriter(int fd);

  // What would be shown to a person; empty if nobody listens.
  WaitCallbacks wait_callbacks() const;
  void write_granted(const Lease& lease) const;
  void write_ended(const AttemptResult& end) const;

 private:
  int fd_;
};

}  // namespace berth
