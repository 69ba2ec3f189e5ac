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
  harbour_.remove_client(id(), std::nullopt);
  return true;
}

UniqueFd Lease::make_inheritable_bell() const {
  constexpr int kMinFd = 300;  // `exec 9>lock`, and bash's own 255
  UniqueFd copy(::fcntl(bell_.get(), F_DUPFD, kMinFd));
  if (!copy) copy = UniqueFd(::fcntl(bell_.get(), F_DUPFD, STDERR_FILENO + 1));
  return copy;
}

bool Lease::is_ended() const {
  return record_.holder == HolderKind::shell && harbour_.is_lease_ended(id());
}

std::chrono::milliseconds Lease::maintain_heartbeat() {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::hours kNoHeartbeat(1);
  constexpr std::chrono::milliseconds kReplyPollInterval(50);
  RedisHostStore* store = harbour_.store();
  if (store == nullptr) return kNoHeartbeat;
  if (store->is_heartbeat_pending()) {
    const auto reply = store->poll_heartbeat();
    if (!reply) return kReplyPollInterval;
    handle_heartbeat_reply(*reply);
  }
  const auto due = last_heartbeat_ + store->heartbeat_interval();
  const auto now = Clock::now();
  if (now < due) return std::chrono::ceil<std::chrono::milliseconds>(due - now);
  last_heartbeat_ = now;
  if (!store->send_lease_heartbeat(id())) return store->heartbeat_interval();
  return kReplyPollInterval;
}

void Lease::handle_heartbeat_reply(const Result<HeartbeatReply>& reply) {
  if (!reply) return;  // the server is away: again at the next time
  if (*reply != HeartbeatReply::missing || is_ended()) return;
  StoreChange change;
  change.leases_to_restore.emplace_back(id(), format_shared_record(record_));
  (void)harbour_.store()->commit(change);
}

int Lease::deletion_watch_fd() {
  if (inotify_fd_) return inotify_fd_.get();
  inotify_fd_ = UniqueFd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!inotify_fd_) return -1;
  const std::string& path = harbour_.location().path;
  const std::string bell = fmt::format("{}/{}", path, bell_file_name(id()));
  // The bell is open, so its deletion shows as a change of its number of links.
  ::inotify_add_watch(inotify_fd_.get(), bell.c_str(), IN_ATTRIB | IN_MOVE_SELF);
  const std::string lease = fmt::format("{}/{}", path, lease_file_name(id()));
  ::inotify_add_watch(inotify_fd_.get(), lease.c_str(), IN_DELETE_SELF | IN_MOVE_SELF);
  ::inotify_add_watch(inotify_fd_.get(), path.c_str(), IN_MOVE_SELF | IN_DELETE_SELF);
  return inotify_fd_.get();
}

std::optional<std::string> Lease::restore_if_deleted() {
  // Again after each time: what is deleted between the look and the watch would not be noticed.
  constexpr int kMaxRounds = 10;
  bool restored_any = false;
  for (int i = 0; i < kMaxRounds; ++i) {
    const auto restored = restore_once();
    if (!restored) {
      return fmt::format("the lease {} was deleted and cannot be put back: {}", id(),
                         restored.error().message);
    }
    if (!*restored) break;
    restored_any = true;
  }
  if (!restored_any) return std::nullopt;
  return fmt::format("somebody deleted the lease {} from {}; it was put back", id(),
                     harbour_.location().path);
}

Result<bool> Lease::restore_once() {
  if (deletion_watch_fd() >= 0) {
    std::array<char, 4096> events{};
    while (::read(inotify_fd_.get(), events.data(), events.size()) > 0) {
    }
  }
  if (harbour_.has_bell(id(), bell_.get()) && harbour_.has_lease(id())) return false;
  // Without the lock: that we hold these GPUs is a fact, and whoever made the new directory keeps
  // it locked for a moment, to let us say so. If that is us, it is said before the lock is dropped.
  std::optional<Result<void>> done;
  const auto rewrite = [&](int directory) { done = rewrite_files(directory); };
  auto harbour = Harbour::open(harbour_.location(), rewrite);
  if (!harbour) return tl::make_unexpected(harbour.error());
  harbour_ = std::move(*harbour);
  if (!done) rewrite(harbour_.directory());
  if (!*done) return tl::make_unexpected(done->error());
  inotify_fd_.reset();
  return true;
}

Result<void> Lease::rewrite_files(int directory) {
  if (!harbour_.has_bell(id(), bell_.get())) {
    ::unlinkat(directory, bell_file_name(id()).c_str(), 0);  // of an attempt that failed half-way
    auto bell = make_bell(directory, id());
    if (!bell) return tl::make_unexpected(bell.error());
    if (!*bell) return fail(ErrorKind::io, "somebody else has taken this lease's name");
    // The old bell stays open in the job. From now on this process proves that the lease lives.
    bell_ = std::move(**bell);
  }
  DirectoryTransaction transaction(
      UniqueFd(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  ::unlinkat(directory, lease_file_name(id()).c_str(), 0);  // where only the bell was deleted
  return transaction.write_lease(record_);
}

}  // namespace berth
