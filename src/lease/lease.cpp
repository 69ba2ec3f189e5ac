// Holds, restores and releases a lease; see lease.h.
#include "lease/lease.h"

#include <array>
#include <fcntl.h>
#include <fmt/format.h>
#include <memory>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>
#include <utility>

#include "harbour/bell.h"
#include "harbour/file_names.h"
#include "harbour/record_file.h"

namespace berth {

bool Lease::release(std::chrono::milliseconds patience) {
  bell_.reset();
  // If this cannot be read, other processes may hold the bell, and the lease must stay.
  auto bell = open_bell(harbour_.directory(), id(), record_.uid);
  if (bell && bell->state == PeerBell::State::alive && patience.count() > 0) {
    pollfd closed{bell->write_end.get(), 0, 0};  // POLLERR when no process has the read end
    ::poll(&closed, 1, static_cast<int>(patience.count()));
    bell = open_bell(harbour_.directory(), id(), record_.uid);
  }
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
  if (!reply) return;  // the server is unavailable; the next heartbeat tries again
  if (*reply != HeartbeatReply::missing || is_ended()) return;
  StoreChange change;
  change.leases_to_restore.emplace_back(id(), format_shared_record(record_));
  (void)harbour_.store()->commit(change);
}

int Lease::deletion_watch_fd() {
  if (inotify_fd_) return inotify_fd_.get();
  inotify_fd_ = UniqueFd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!inotify_fd_) return -1;
  add_watches();
  return inotify_fd_.get();
}

// Changes nothing for a file that is watched already.
void Lease::add_watches() {
  const std::string& path = harbour_.location().path;
  const std::string bell = fmt::format("{}/{}", path, bell_file_name(id()));
  // The bell is open, so its deletion is visible only as a change of its number of links.
  ::inotify_add_watch(inotify_fd_.get(), bell.c_str(), IN_ATTRIB | IN_MOVE_SELF);
  const std::string lease = fmt::format("{}/{}", path, lease_file_name(id()));
  ::inotify_add_watch(inotify_fd_.get(), lease.c_str(), IN_DELETE_SELF | IN_MOVE_SELF);
  ::inotify_add_watch(inotify_fd_.get(), path.c_str(), IN_MOVE_SELF | IN_DELETE_SELF);
}

void Lease::update_announced_end() {
  const auto now = harbour_.read_own_lease(id());
  if (!now || now->uuids != record_.uuids) return;
  record_.request.time = now->request.time;
  record_.time_is_estimated = now->time_is_estimated;
}

std::optional<std::string> Lease::restore_if_deleted() {
  // Checks again after each restore: a deletion between the check and the new watch raises no
  // event.
  constexpr int kMaxRounds = 10;
  bool restored_any = false;
  for (int i = 0; i < kMaxRounds; ++i) {
    const auto restored = restore_once();
    if (!restored) {
      return fmt::format("the files of lease {} were deleted and cannot be restored: {}", id(),
                         restored.error().message);
    }
    if (!*restored) break;
    restored_any = true;
  }
  if (!restored_any) return std::nullopt;
  return fmt::format("the files of lease {} were deleted from {}; berth has restored them", id(),
                     harbour_.location().path);
}

Result<bool> Lease::restore_once() {
  if (inotify_fd_) {
    std::array<char, 4096> events{};
    while (::read(inotify_fd_.get(), events.data(), events.size()) > 0) {
    }
    add_watches();  // a watch ends with its file, which 'berth extend' replaces
  } else {
    (void)deletion_watch_fd();
  }
  update_announced_end();
  if (harbour_.has_bell(id(), bell_.get()) && harbour_.has_lease(id())) return false;
  // Without the lock: this process holds the GPUs in any case. A process that creates the directory
  // anew keeps it locked for a moment, so that the holders can write their leases. If this process
  // creates it, it writes the lease before it drops the lock.
  std::optional<Result<void>> done;
  const auto rewrite = [&](int directory) { done = rewrite_files(directory); };
  harbour_ = TRY(Harbour::open(harbour_.location(), rewrite));
  if (!done) rewrite(harbour_.directory());
  TRY(*done);
  inotify_fd_.reset();
  return true;
}

Result<void> Lease::rewrite_files(int directory) {
  if (!harbour_.has_bell(id(), bell_.get())) {
    // A bell may be left from an attempt that failed half-way.
    ::unlinkat(directory, bell_file_name(id()).c_str(), 0);
    std::optional<UniqueFd> bell = TRY(make_bell(directory, id()));
    if (!bell) return fail(ErrorKind::io, "another user's file has this lease's name");
    // The job keeps the old bell open. From now on only this process keeps the lease alive.
    bell_ = std::move(*bell);
  }
  // If only the bell was deleted, the lease's file still exists.
  ::unlinkat(directory, lease_file_name(id()).c_str(), 0);
  return write_lease_file(directory, record_);
}

Result<std::optional<UniqueFd>> attach_to_lease(const std::string& id, HarbourLocation location) {
  if (!is_id(id)) return std::nullopt;
  std::optional<Harbour> harbour = TRY(Harbour::open_existing(std::move(location)));
  if (!harbour) return std::nullopt;
  // Under the lock: the GPUs of a lease that is alive now are not granted to another client before
  // this process holds the bell.
  const std::unique_ptr<Transaction> transaction = TRY(harbour->begin(LockMode::shared, {}));
  const std::optional<Client> lease = TRY(transaction->read_lease(id));
  if (!lease) return std::nullopt;
  if (lease->record.uid != ::geteuid() || lease->record.holder != HolderKind::job)
    return std::nullopt;
  UniqueFd bell(::openat(harbour->directory(), bell_file_name(id).c_str(),
                         O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  if (!bell) return std::nullopt;
  return bell;
}

}  // namespace berth
