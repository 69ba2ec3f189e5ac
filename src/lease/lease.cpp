// Holding a lease; see lease.h.
#include "lease/lease.h"

#include <array>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/inotify.h>
#include <unistd.h>
#include <utility>

#include "harbour/bell.h"

namespace berth {

bool Lease::release() {
  bell_.reset();
  // If nobody can say whether others hold it, it stays: they may.
  const auto bell = open_bell(harbour_.directory(), id(), record_.uid);
  if (!bell || bell->state != PeerBell::State::dead) return false;
  harbour_.remove(id(), std::nullopt);
  return true;
}

UniqueFd Lease::bell_for_programs() const {
  constexpr int kAbove = 300;  // `exec 9>lock`, and bash's own 255
  UniqueFd copy(::fcntl(bell_.get(), F_DUPFD, kAbove));
  if (!copy) copy = UniqueFd(::fcntl(bell_.get(), F_DUPFD, STDERR_FILENO + 1));
  return copy;
}

bool Lease::is_ended() const {
  return record_.holder == HolderKind::shell && harbour_.is_ended(id());
}

std::chrono::milliseconds Lease::keep() {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::hours kNever(1);
  constexpr std::chrono::milliseconds kAnswer(50);
  RedisHostStore* part = harbour_.part();
  if (part == nullptr) return kNever;
  if (part->is_beating()) {
    const auto news = part->poll_heartbeat();
    if (!news) return kAnswer;
    take_beat(*news);
  }
  const auto due = beaten_ + part->beat_interval();
  const auto now = Clock::now();
  if (now < due) return std::chrono::ceil<std::chrono::milliseconds>(due - now);
  beaten_ = now;
  if (!part->send_beat(id())) return part->beat_interval();
  return kAnswer;
}

void Lease::take_beat(const Result<Beat>& beat) {
  if (!beat) return;  // the server is away: again at the next time
  if (*beat != Beat::missing || is_ended()) return;
  StoreChange change;
  change.put_back.emplace_back(id(), write_shared_record(record_));
  (void)harbour_.part()->commit(change);
}

int Lease::deletion_watch() {
  if (watch_) return watch_.get();
  watch_ = UniqueFd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!watch_) return -1;
  const std::string& path = harbour_.location().path;
  const std::string bell = fmt::format("{}/{}", path, bell_name(id()));
  // The bell is open, so its deletion shows as a change of its number of links.
  ::inotify_add_watch(watch_.get(), bell.c_str(), IN_ATTRIB | IN_MOVE_SELF);
  const std::string lease = fmt::format("{}/{}", path, lease_name(id()));
  ::inotify_add_watch(watch_.get(), lease.c_str(), IN_DELETE_SELF | IN_MOVE_SELF);
  ::inotify_add_watch(watch_.get(), path.c_str(), IN_MOVE_SELF | IN_DELETE_SELF);
  return watch_.get();
}

std::optional<std::string> Lease::restore() {
  // Again after each time: what is deleted between the look and the watch would not be noticed.
  constexpr int kMostTimes = 10;
  bool any = false;
  for (int i = 0; i < kMostTimes; ++i) {
    const auto restored = restore_once();
    if (!restored) {
      return fmt::format("the lease {} was deleted and cannot be put back: {}", id(),
                         restored.error().message);
    }
    if (!*restored) break;
    any = true;
  }
  if (!any) return std::nullopt;
  return fmt::format("somebody deleted the lease {} from {}; it was put back", id(),
                     harbour_.location().path);
}

Result<bool> Lease::restore_once() {
  if (deletion_watch() >= 0) {
    std::array<char, 4096> events{};
    while (::read(watch_.get(), events.data(), events.size()) > 0) {
    }
  }
  if (harbour_.has_bell(id(), bell_.get()) && harbour_.has_lease(id())) return false;
  // Without the lock: that we hold these GPUs is a fact, and whoever made the new directory keeps
  // it locked for a moment, to let us say so. If that is us, it is said before the lock is dropped.
  std::optional<Result<void>> done;
  const auto put = [&](int directory) { done = put_back(directory); };
  auto harbour = Harbour::open(harbour_.location(), put);
  if (!harbour) return tl::make_unexpected(harbour.error());
  harbour_ = std::move(*harbour);
  if (!done) put(harbour_.directory());
  if (!*done) return tl::make_unexpected(done->error());
  watch_.reset();
  return true;
}

Result<void> Lease::put_back(int directory) {
  if (!harbour_.has_bell(id(), bell_.get())) {
    ::unlinkat(directory, bell_name(id()).c_str(), 0);  // of an attempt that failed half-way
    auto bell = make_bell(directory, id());
    if (!bell) return tl::make_unexpected(bell.error());
    if (!*bell) return fail(ErrorKind::io, "somebody else has taken this lease's name");
    // The old bell stays open in the job. From now on this process proves that the lease lives.
    bell_ = std::move(**bell);
  }
  DirectoryTransaction transaction(
      UniqueFd(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  ::unlinkat(directory, lease_name(id()).c_str(), 0);  // where only the bell was deleted
  return transaction.write_lease(record_);
}

}  // namespace berth
