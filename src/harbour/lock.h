// The harbour's lock: flock() on the directory itself, with a time limit.
//
// Without a separate lock file there is no file that a user could create beforehand or delete. The
// kernel releases the lock when its last descriptor is closed, however the process ends.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"

namespace berth {

enum class LockMode { shared, exclusive };

// How to wait while another process holds the lock. A process that is stopped while it holds the
// lock (SIGSTOP) holds it until it continues.
struct LockOptions {
  std::chrono::milliseconds timeout{10'000};
  // Called once, after a few seconds. `holder` names the process that holds the lock.
  std::function<void(const std::string& holder)> on_slow;
  // Called several times a second; true ends the wait as if the time were over.
  std::function<bool()> should_give_up;
  // The same, for work that may take long: the caller has no place in the line meanwhile.
  std::function<void()> while_waiting{};
};

// Locks the open directory, and waits for the lock if needed. The lock belongs to the open file:
// unlock it explicitly (flock() with LOCK_UN), since closing the descriptor does not unlock while a
// fork has a copy. The error (ErrorKind::io) names the process that holds the lock. While it waits,
// it uses a signal of this process; see base/interrupter.h.
Result<void> lock_directory(int directory, LockMode mode, const LockOptions& lock_options);

}  // namespace berth
