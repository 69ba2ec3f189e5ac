// Finds the process that holds the harbour's lock, for messages to the user.
#pragma once

#include <optional>
#include <string>
#include <sys/types.h>

namespace berth {

struct LockHolder {
  // "python (pid 4711, user ann)"; "an unknown process, perhaps python (pid 4711, user ann)"; or "a
  // process that is not visible here"; or, with `in_turn`, "other clients in turn".
  std::string name;
  // Set only if /proc shows that this process has the locked open file. The kernel names the
  // process that took the lock: it may have passed the open file on and exited, and another process
  // may have its PID now. Messages must not advise killing a process that is not verified.
  std::optional<pid_t> verified_pid;
  // The lock passes from process to process: no process has held it for long.
  bool in_turn = false;
};

// The holder of an flock() lock on the file that `directory` is open on. Reads /proc, and may take
// a quarter of a second.
LockHolder find_lock_holder(int directory);

}  // namespace berth
