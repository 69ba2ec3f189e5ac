// Taking the lock; see lock.h.
#include "harbour/lock.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fmt/format.h>
#include <sys/file.h>
#include <thread>

#include "harbour/file_error.h"
#include "harbour/interrupter.h"
#include "harbour/lock_holder.h"

namespace berth {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kSlow(3);
// Where nothing interrupts a waiting flock(): how long to pause between attempts.
constexpr std::chrono::milliseconds kFirstPause(1);
constexpr std::chrono::milliseconds kLongestPause(64);

Error held_too_long(int directory) {
  const LockHolder holder = find_lock_holder(directory);
  if (!holder.verified) {
    return {ErrorKind::io,
            fmt::format("{} has held the harbour lock too long; to find it, run as root on the "
                        "host: berth doctor",
                        holder.name)};
  }
  return {ErrorKind::io,
          fmt::format("{} has held the harbour lock too long; if it is stopped, resume it "
                      "(kill -CONT {}) or kill it",
                      holder.name, *holder.verified)};
}

}  // namespace

Result<void> lock_directory(int directory, LockMode mode, const Patience& patience) {
  const int operation = mode == LockMode::exclusive ? LOCK_EX : LOCK_SH;
  if (::flock(directory, operation | LOCK_NB) == 0) return {};
  if (errno != EWOULDBLOCK && errno != EINTR) return file_error("lock", directory);
  const Interrupter interrupter;
  const auto begin = Clock::now();
  auto pause = kFirstPause;
  bool told = false;
  while (::flock(directory, interrupter ? operation : operation | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, kLongestPause);
    } else if (errno != EINTR) {
      return file_error("lock", directory);
    }
    const auto waited = Clock::now() - begin;
    if (!told && waited >= kSlow && patience.on_slow) {
      told = true;
      patience.on_slow(find_lock_holder(directory).name);
    }
    if (waited >= patience.limit || (patience.give_up && patience.give_up())) {
      return tl::make_unexpected(held_too_long(directory));
    }
  }
  return {};
}

}  // namespace berth
