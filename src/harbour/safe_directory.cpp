// Implements safe_directory.h by openat2(), statx() and checks of owners and modes.
#include "harbour/safe_directory.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <string_view>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/text.h"
#include "base/users.h"
#include "harbour/file_error.h"

namespace berth {
namespace {

constexpr int kMaxLinks = 40;  // the kernel's limit
constexpr std::array kAccessLists{"system.posix_acl_access", "system.posix_acl_default"};

// The group's permission includes what an access control list grants, since its mask is the group's
// part of the mode.
bool others_can_write(const struct stat& directory) {
  return (directory.st_mode & (S_IWGRP | S_IWOTH)) != 0;
}

bool is_sticky(const struct stat& directory) {
  return (directory.st_mode & S_ISVTX) != 0;
}

// The components of `path`, the last one first, without "." and empty ones.
std::vector<std::string> reversed_components(std::string_view path) {
  std::vector<std::string> components;
  while (!path.empty()) {
    const auto slash = path.rfind('/');
    const std::string_view component =
        slash == std::string_view::npos ? path : path.substr(slash + 1);
    if (!component.empty() && component != ".") components.emplace_back(component);
    path = slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
  }
  return components;
}

std::string join_path(const std::vector<std::string>& components) {
  std::string path;
  for (const std::string& component : components) path += fmt::format("/{}", component);
  return path.empty() ? "/" : path;
}

// Resolves one component after the other, as the kernel does, and checks each.
class PathResolver {
 public:
  explicit PathResolver(const std::string& path)
      : path_(path), remaining_(reversed_components(path)) {}

  Result<TrustedPath> run() {
    if (remaining_.empty()) remaining_.emplace_back(".");
    if (remaining_.front() == "..") {
      return fail(ErrorKind::io,
                  fmt::format("{} ends in '..'; write the path without it", in_quotes(path_)));
    }
    if (!go_to_root()) return file_error("open", "/");
    TRY(check_current());
    while (remaining_.size() > 1) TRY(resolve_next());
    const std::string name = remaining_.front();
    if (name != ".") resolved_.push_back(name);
    return TrustedPath{join_path(resolved_), std::move(current_), name};
  }

 private:
  bool go_to_root() {
    resolved_.clear();
    current_ = UniqueFd(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
    return static_cast<bool>(current_);
  }

  Result<void> check_current() const {
    struct stat file_info {};
    if (::fstat(current_.get(), &file_info) != 0)
      return file_error("inspect", join_path(resolved_));
    const bool can_be_replaced = others_can_write(file_info) && !is_sticky(file_info);
    if (file_info.st_uid == 0 && !can_be_replaced) return {};
    return fail(
        ErrorKind::io,
        fmt::format(
            "{} can replace files in {}, so {} is not safe there; choose a path in a folder "
            "that only root can change",
            file_info.st_uid == 0 ? std::string("its group or every user")
                                  : user_name(file_info.st_uid),
            in_quotes(join_path(resolved_)), in_quotes(path_)));
  }

  Result<void> resolve_next() {
    const std::string component = std::exchange(remaining_.back(), {});
    remaining_.pop_back();
    UniqueFd next(::openat(current_.get(), component.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (!next && errno == ENOENT) {
      resolved_.push_back(component);
      return fail(ErrorKind::io,
                  fmt::format("cannot use {}: there is no folder {}; create that folder, or set "
                              "BERTH_DIR to another one (the same for all users)",
                              in_quotes(path_), in_quotes(join_path(resolved_))));
    }
    struct stat file_info {};
    if (!next || ::fstat(next.get(), &file_info) != 0) return file_error("open", path_);
    if (S_ISLNK(file_info.st_mode)) return follow_link(next.get(), file_info, component);
    if (component == "..") {
      if (!resolved_.empty()) resolved_.pop_back();
    } else {
      resolved_.push_back(component);
    }
    current_ = std::move(next);
    errno = ENOTDIR;
    if (!S_ISDIR(file_info.st_mode)) return file_error("open", path_);
    return check_current();
  }

  Result<void> follow_link(int link, const struct stat& file_info, const std::string& component) {
    if (file_info.st_uid != 0) {
      return fail(ErrorKind::io,
                  fmt::format("{} leads through {}, a symbolic link of {}; set BERTH_DIR to the "
                              "directory itself",
                              in_quotes(path_), in_quotes(component), user_name(file_info.st_uid)));
    }
    std::array<char, PATH_MAX> target{};
    const auto length = ::readlinkat(link, "", target.data(), target.size());
    if (length < 0) return file_error("open", path_);
    errno = ELOOP;
    if (++links_ > kMaxLinks) return file_error("open", path_);
    const std::string_view text(target.data(), static_cast<std::size_t>(length));
    if (text.starts_with('/') && !go_to_root()) return file_error("open", "/");
    for (std::string& one : reversed_components(text)) remaining_.push_back(std::move(one));
    return {};
  }

  const std::string& path_;
  std::vector<std::string> remaining_;  // components in reverse order: the next one is the last
  std::vector<std::string> resolved_;
  UniqueFd current_;
  int links_ = 0;
};

// openat2() detects a mount point (EXDEV) before it sends a request to the mounted file system.
UniqueFd open_on_same_mount(int directory, const std::string& name, int flags) {
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags | O_NOFOLLOW | O_CLOEXEC);
  how.resolve = RESOLVE_NO_XDEV;
  return UniqueFd(
      static_cast<int>(::syscall(SYS_openat2, directory, name.c_str(), &how, sizeof how)));
}

}  // namespace

Result<TrustedPath> resolve_trusted_path(const std::string& path) {
  return PathResolver(path).run();
}

bool others_can_rename(const struct stat& directory, uid_t user) {
  const uid_t owner = directory.st_uid;
  if (owner != 0 && owner != user && is_identified(owner)) return true;
  return others_can_write(directory) && !is_sticky(directory);
}

UniqueFd make_directory_at(int parent, const std::string& name, mode_t mode) {
  if (::mkdirat(parent, name.c_str(), S_IRWXU) != 0) return {};
  UniqueFd made(::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  const auto remove_and_fail = [&] {
    const int reason = errno;
    ::unlinkat(parent, name.c_str(), AT_REMOVEDIR);
    errno = reason;
    return UniqueFd();
  };
  struct stat file_info {};
  if (!made || ::fstat(made.get(), &file_info) != 0) return remove_and_fail();
  // A user who can rename in `parent` may have put another directory there. The set-group-ID bit
  // may be set: the directory inherits it from the parent.
  const bool own = file_info.st_uid == ::geteuid();
  if (!own || (file_info.st_mode & (S_ISUID | S_ISVTX | S_IRWXG | S_IRWXO)) != 0) {
    errno = EPERM;
    return {};
  }
  if (!remove_access_lists(made.get()) || ::fchmod(made.get(), mode) != 0) return remove_and_fail();
  return made;
}

Result<bool> has_access_list(int directory, const std::string& path) {
  for (const char* list : kAccessLists) {
    if (::fgetxattr(directory, list, nullptr, 0) >= 0) return true;
    if (errno != ENODATA && errno != EOPNOTSUPP && errno != ENOSYS) {
      return file_error("read the access control list of", path);
    }
  }
  return false;
}

bool remove_access_lists(int directory) {
  for (const char* list : kAccessLists) {
    if (::fremovexattr(directory, list) == 0) continue;
    if (errno != ENODATA && errno != EOPNOTSUPP && errno != ENOSYS) return false;
  }
  return true;
}

std::int64_t clamp_file_time(std::int64_t seconds) {
  constexpr std::int64_t kMaxSeconds = 1LL
                                       << 33;  // the year 2242: its nanoseconds fit into 64 bits
  return std::clamp<std::int64_t>(seconds, 0, kMaxSeconds);
}

bool is_same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

bool is_mount_point(const struct statx& file_info) {
  return (file_info.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

bool stat_at(int directory, const std::string& name, struct statx& file_info) {
  // AT_STATX_DONT_SYNC: for FUSE, the kernel answers from its cache.
  const bool known =
      ::statx(directory, name.c_str(), AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC,
              STATX_BASIC_STATS | STATX_BTIME, &file_info) == 0;
  if (known && !is_mount_point(file_info)) return true;
  if (!known) {
    // FUSE refuses every user but the one that mounted it, even root.
    const int reason = errno;
    const bool mounted =
        reason != ENOENT && !open_on_same_mount(directory, name, O_PATH) && errno == EXDEV;
    errno = reason;
    if (!mounted) return false;
  }
  file_info = {};
  file_info.stx_attributes = STATX_ATTR_MOUNT_ROOT;
  file_info.stx_uid = static_cast<uid_t>(-1);
  return true;
}

UniqueFd open_at(int directory, const std::string& name, int flags) {
  UniqueFd file = open_on_same_mount(directory, name, flags);
  if (file || (errno != ENOSYS && errno != EPERM)) return file;
  // Some containers forbid openat2(), and Linux before 5.6 does not have it. Opening with O_PATH
  // sends no request to the file system.
  const UniqueFd handle(::openat(directory, name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!handle) return {};
  struct statx file_info {};
  if (::statx(handle.get(), "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &file_info) != 0) {
    return {};
  }
  if (is_mount_point(file_info) || S_ISLNK(file_info.stx_mode)) {
    errno = is_mount_point(file_info) ? EXDEV : ELOOP;
    return {};
  }
  return UniqueFd(::open(fmt::format("/proc/self/fd/{}", handle.get()).c_str(), flags | O_CLOEXEC));
}

}  // namespace berth
