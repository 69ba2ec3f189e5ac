// Creates, opens and rings bells; see bell.h.
#include "harbour/bell.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "harbour/file_error.h"
#include "harbour/file_names.h"
#include "harbour/safe_directory.h"

namespace berth {
namespace {

constexpr mode_t kBellMode = 0622;
constexpr const char* kAccessList = "system.posix_acl_access";

// With an access control list, the mode does not say which users may open the bell. Keeps errno.
bool bell_has_access_list(int directory, const std::string& name) {
  const int before = errno;
  const std::string path = fmt::format("/proc/self/fd/{}/{}", directory, name);
  const bool found = ::lgetxattr(path.c_str(), kAccessList, nullptr, 0) > 0;
  errno = before;
  return found;
}

bool has_unread_ring(int write_end) {
  int bytes = 0;
  return ::ioctl(write_end, FIONREAD, &bytes) == 0 && bytes > 0;
}

}  // namespace

Result<std::optional<UniqueFd>> make_bell(int directory, const std::string& id) {
  const std::string name = bell_file_name(id);
  if (::mkfifoat(directory, name.c_str(), kBellMode & 0600) != 0) {
    if (errno == EEXIST) return std::nullopt;
    return file_error("create a bell in", directory);
  }
  UniqueFd bell(::openat(directory, name.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW));
  // The owner of the directory can rename files in it: the name may mean another file of this user
  // now, which must not become writable for all users.
  struct stat file_info {};
  if (bell && (::fstat(bell.get(), &file_info) != 0 || !S_ISFIFO(file_info.st_mode))) {
    return fail(ErrorKind::io, "another process replaced a bell during its creation; try again");
  }
  // The bell inherits an access control list if the directory has a default one. Berth refuses such
  // a directory, but its owner can set the list after that check.
  if (bell) (void)::fremovexattr(bell.get(), kAccessList);
  // mkfifo() applies the umask; with a umask of 077 other users could not ring the bell.
  if (!bell || ::fchmod(bell.get(), kBellMode) != 0) {
    const int reason = errno;
    ::unlinkat(directory, name.c_str(), 0);
    errno = reason;
    return file_error("open a bell in", directory);
  }
  return bell;
}

bool clear_rings(int bell) {
  // Any user can write to the bell, without end and faster than this loop reads, and the caller may
  // hold the lock. So the loop reads only the bytes that are there now.
  int remaining = 0;
  if (::ioctl(bell, FIONREAD, &remaining) != 0 || remaining == 0) return false;
  std::array<char, 4096> rings{};
  while (remaining > 0) {
    const auto size = std::min(static_cast<std::size_t>(remaining), rings.size());
    const auto length = ::read(bell, rings.data(), size);
    if (length <= 0) break;
    remaining -= static_cast<int>(length);
  }
  return true;
}

Result<PeerBell> open_bell(int directory, const std::string& id, std::optional<uid_t> owner) {
  const auto untrusted = [](std::string problem) {
    return PeerBell{PeerBell::State::untrusted, {}, std::move(problem)};
  };
  const char* const kMounted = "a file system is mounted over its bell";
  const std::string name = bell_file_name(id);
  struct statx file_info {};
  // Check the type before opening: a hostile user may have put a device there, and opening a device
  // can have any effect.
  if (!stat_at(directory, name, file_info)) {
    if (errno == ENOENT) return PeerBell{};
    return file_error("inspect a bell in", directory);
  }
  if (is_mount_point(file_info)) return untrusted(kMounted);
  if (!S_ISFIFO(file_info.stx_mode)) return untrusted("its bell is not a FIFO");
  if (owner && file_info.stx_uid != *owner) {
    return untrusted(fmt::format("its bell belongs to uid {}", file_info.stx_uid));
  }
  UniqueFd write_end = open_at(directory, name, O_WRONLY | O_NONBLOCK | O_NOCTTY);
  if (!write_end) {
    if (errno == ENXIO || errno == ENOENT) return PeerBell{};
    if (errno == EXDEV) return untrusted(kMounted);
    // The owner of a FIFO can cause EACCES, by its mode or an access control list, but not EPERM.
    const bool by_mode = errno == EACCES && (file_info.stx_mode & kBellMode) != kBellMode;
    if ((errno == EACCES || errno == EPERM) && !by_mode && !bell_has_access_list(directory, name)) {
      return PeerBell{PeerBell::State::unknown,
                      {},
                      fmt::format("its bell cannot be opened ({})", std::strerror(errno)),
                      file_info.stx_uid};
    }
    if (is_caused_by_owner(errno)) return untrusted("its bell cannot be rung");
    return file_error("open a bell in", directory);
  }
  struct stat opened {};
  if (::fstat(write_end.get(), &opened) != 0) return file_error("inspect a bell in", directory);
  if (opened.st_ino != file_info.stx_ino) {
    return untrusted("its bell was replaced during the check");
  }
  return PeerBell{PeerBell::State::alive, std::move(write_end), "", file_info.stx_uid};
}

void ring(int write_end) {
  if (has_unread_ring(write_end)) return;
  // The last reader may exit at any moment, and a write to a FIFO without a reader raises SIGPIPE.
  // So block the signal, and consume it unless it was pending before.
  sigset_t pipe;
  sigset_t before;
  sigset_t pending;
  ::sigemptyset(&pipe);
  ::sigaddset(&pipe, SIGPIPE);
  ::sigpending(&pending);
  ::pthread_sigmask(SIG_BLOCK, &pipe, &before);
  const char byte = '!';
  if (::write(write_end, &byte, 1) < 0 && errno == EPIPE && ::sigismember(&pending, SIGPIPE) == 0) {
    const timespec now{};
    ::sigtimedwait(&pipe, nullptr, &now);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

std::optional<std::chrono::nanoseconds> unanswered_for(int write_end) {
  if (!has_unread_ring(write_end)) return std::nullopt;
  struct stat file_info {};
  timespec now{};
  if (::fstat(write_end, &file_info) != 0 || ::clock_gettime(CLOCK_REALTIME, &now) != 0)
    return std::nullopt;
  // ring() writes only to an empty FIFO, so the FIFO's modification time is that of the oldest
  // unread ring.
  return std::chrono::seconds(now.tv_sec - clamp_file_time(file_info.st_mtim.tv_sec)) +
         std::chrono::nanoseconds(now.tv_nsec - file_info.st_mtim.tv_nsec);
}

}  // namespace berth
