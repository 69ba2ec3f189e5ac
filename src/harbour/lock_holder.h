// Which process holds the harbour's lock, for messages to people.
#pragma once

#include <optional>
#include <string>
#include <sys/types.h>

namespace berth {

struct LockHolder {
  // "python (pid 4711, user ann)"; "an unknown process, perhaps python (pid 4711, user ann)"; or
  // "a process that cannot be seen from here".
  std::string name;
  // Only if that process was seen to have the locked open file. The kernel names the process that
  // took a lock: it may have passed the open file on and ended, and its PID may be another
  // process's now.
  std::optional<pid_t> verified_pid;
};

// Of a lock by flock() on the open directory.
LockHolder find_lock_holder(int directory);

}  // namespace berth
