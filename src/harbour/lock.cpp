// Takes the lock; see lock.h.
#include "harbour/lock.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fmt/format.h>
#include <random>
#include <sys/file.h>
#include <thread>
#include <unistd.h>

#include "base/interrupter.h"
#include "harbour/file_error.h"
#include "harbour/lock_holder.h"

namespace berth {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kReportHolderAfter(3);
// The pause before the next attempt is a fraction of the time that the process has waited already,
// within these limits.
constexpr int kPauseFraction = 16;
constexpr milliseconds kMinPause(1);
constexpr milliseconds kMaxPause(200);

// At random, from half to one and a half of the pause: otherwise processes that began to wait in
// one moment would try again in one moment.
milliseconds spread(milliseconds pause) {
  static thread_local std::minstd_rand random(
      static_cast<unsigned>(::getpid() + Clock::now().time_since_epoch().count()));
  return pause / 2 + milliseconds(random() % static_cast<unsigned>(pause.count() + 1));
}

Error lock_timeout_error(int directory) {
  const LockHolder holder = find_lock_holder(directory);
  if (holder.in_turn) {
    return {ErrorKind::io,
            "many clients wait for the harbour lock, and this one was not next in "
            "time; try again"};
  }
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
  const auto begin = Clock::now();
  {
    // A place in the kernel's line hands the lock over without delay, so most processes get it
    // here.
    const Interrupter interrupter;
    if (interrupter) {
      if (::flock(directory, operation) == 0) return {};
      if (errno != EINTR) return file_error("lock", directory);
    }
  }
  // Not in the kernel's line any more: whenever a signal interrupts one of the processes in it, the
  // kernel wakes all behind that one, and each walks along the line to its end. A line of some
  // hundred processes that are interrupted now and then does nothing else.
  for (bool reported = false;;) {
    const auto waited = Clock::now() - begin;
    if (!reported && waited >= kReportHolderAfter && lock_options.on_slow) {
      reported = true;
      lock_options.on_slow(find_lock_holder(directory).name);
    }
    if (waited >= lock_options.timeout ||
        (lock_options.should_give_up && lock_options.should_give_up())) {
      return tl::make_unexpected(lock_timeout_error(directory));
    }
    if (lock_options.while_waiting) lock_options.while_waiting();
    const auto pause = std::chrono::floor<milliseconds>(waited / kPauseFraction);
    std::this_thread::sleep_for(spread(std::clamp(pause, kMinPause, kMaxPause)));
    if (::flock(directory, operation | LOCK_NB) == 0) return {};
    if (errno != EWOULDBLOCK && errno != EINTR) return file_error("lock", directory);
  }
}

}  // namespace berth
