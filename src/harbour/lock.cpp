// Takes the lock; see lock.h.
#include "harbour/lock.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fmt/format.h>
#include <sys/file.h>
#include <thread>

#include "base/interrupter.h"
#include "harbour/file_error.h"
#include "harbour/lock_holder.h"

namespace berth {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kReportHolderAfter(3);
// The pauses between attempts where no signal can interrupt a blocking flock().
constexpr std::chrono::milliseconds kFirstPause(1);
constexpr std::chrono::milliseconds kMaxPause(64);

Error lock_timeout_error(int directory) {
  const LockHolder holder = find_lock_holder(directory);
  if (!holder.verified_pid) {
    return {ErrorKind::io,
            fmt::format("{} has held the harbour lock too long; to find it, run as root on the "
                        "host: berth doctor",
                        holder.name)};
  }
  return {ErrorKind::io,
          fmt::format("{} has held the harbour lock too long; if it is stopped, resume it "
                      "(kill -CONT {}) or kill it",
                      holder.name, *holder.verified_pid)};
}

}  // namespace

Result<void> lock_directory(int directory, LockMode mode, const LockOptions& lock_options) {
  const int operation = mode == LockMode::exclusive ? LOCK_EX : LOCK_SH;
  if (::flock(directory, operation | LOCK_NB) == 0) return {};
  if (errno != EWOULDBLOCK && errno != EINTR) return file_error("lock", directory);
  const Interrupter interrupter;
  const auto begin = Clock::now();
  auto pause = kFirstPause;
  bool reported = false;
  while (::flock(directory, interrupter ? operation : operation | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, kMaxPause);
    } else if (errno != EINTR) {
      return file_error("lock", directory);
    }
    const auto waited = Clock::now() - begin;
    if (!reported && waited >= kReportHolderAfter && lock_options.on_slow) {
      reported = true;
      lock_options.on_slow(find_lock_holder(directory).name);
    }
    if (waited >= lock_options.timeout ||
        (lock_options.should_give_up && lock_options.should_give_up())) {
      return tl::make_unexpected(lock_timeout_error(directory));
    }
  }
  return {};
}

}  // namespace berth
