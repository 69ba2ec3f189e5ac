// The harbour's lock: flock on the directory itself, taken with patience.
//
// The directory needs no lock file beside it: there is nothing to plant or to delete, and the
// kernel drops the lock with its holder.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"

namespace berth {

enum class LockMode { shared, exclusive };

// What to do about a lock that another process keeps, such as one stopped in the middle of a
// decision.
struct LockOptions {
  std::chrono::milliseconds timeout{10'000};
  std::function<void(const std::string& holder)> on_slow;  // called once, after a few seconds
  std::function<bool()> should_give_up;                    // asked several times a second
};

// Locks the open directory. The error (ErrorKind::io) names the process that holds the lock.
Result<void> lock_directory(int directory, LockMode mode, const LockOptions& lock_options);

}  // namespace berth
