// Safe handling of directories; see safe_directory.h.
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

constexpr int kMostLinks = 40;  // as the kernel allows
constexpr std::array kAccessLists{"system.posix_acl_access", "system.posix_acl_default"};

// Group write permission includes what an access control list grants: its mask is the group's part
// of the mode.
bool others_can_write(const struct stat& directory) {
  return (directory.st_mode & (S_IWGRP | S_IWOTH)) != 0;
}

bool is_sticky(const struct stat& directory) {
  return (directory.st_mode & S_ISVTX) != 0;
}

// The components of `path` without "." and empty ones, the last one first.
std::vector<std::string> reversed_components(std::string_view path) {
  std::vector<std::string> parts;
  while (!path.empty()) {
    const auto slash = path.rfind('/');
    const std::string_view part = slash == std::string_view::npos ? path : path.substr(slash + 1);
    if (!part.empty() && part != ".") parts.emplace_back(part);
    path = slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
  }
  return parts;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string path;
  for (const std::string& part : parts) path += fmt::format("/{}", part);
  return path.empty() ? "/" : path;
}

// Resolves one component after the other, as the kernel does, and looks at each.
class Resolver {
 public:
  explicit Resolver(const std::string& path) : path_(path), left_(reversed_components(path)) {}

  Result<TrustedPath> run() {
    if (left_.empty()) left_.emplace_back(".");
    if (left_.front() == "..") {
      return fail(ErrorKind::io,
                  fmt::format("{} ends in '..'; give the path without it", in_quotes(path_)));
    }
    if (!go_to_root()) return file_error("open", "/");
    if (auto trusted = check_here(); !trusted) return tl::make_unexpected(trusted.error());
    while (left_.size() > 1) {
      if (auto moved = step(); !moved) return tl::make_unexpected(moved.error());
    }
    const std::string name = left_.front();
    if (name != ".") done_.push_back(name);
    return TrustedPath{joined(done_), std::move(here_), name};
  }

 private:
  bool go_to_root() {
    done_.clear();
    here_ = UniqueFd(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
    return static_cast<bool>(here_);
  }

  Result<void> check_here() const {
    struct stat about {};
    if (::fstat(here_.get(), &about) != 0) return file_error("look at", joined(done_));
    const bool loose = others_can_write(about) && !is_sticky(about);
    if (about.st_uid == 0 && !loose) return {};
    return fail(
        ErrorKind::io,
        fmt::format(
            "{} can replace what is in {}, so {} is not safe there; choose a folder "
            "in one that only root can change",
            about.st_uid == 0 ? std::string("its group or every user") : user_name(about.st_uid),
            in_quotes(joined(done_)), in_quotes(path_)));
  }

  Result<void> step() {
    const std::string part = std::exchange(left_.back(), {});
    left_.pop_back();
    UniqueFd next(::openat(here_.get(), part.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (!next && errno == ENOENT) {
      done_.push_back(part);
      return fail(ErrorKind::io,
                  fmt::format("cannot use {}: there is no folder {}; make that, or set BERTH_DIR "
                              "to another folder (the same for all users)",
                              in_quotes(path_), in_quotes(joined(done_))));
    }
    struct stat about {};
    if (!next || ::fstat(next.get(), &about) != 0) return file_error("open", path_);
    if (S_ISLNK(about.st_mode)) return follow(next.get(), about, part);
    if (part == "..") {
      if (!done_.empty()) done_.pop_back();
    } else {
      done_.push_back(part);
    }
    here_ = std::move(next);
    errno = ENOTDIR;
    if (!S_ISDIR(about.st_mode)) return file_error("open", path_);
    return check_here();
  }

  Result<void> follow(int link, const struct stat& about, const std::string& part) {
    if (about.st_uid != 0) {
      return fail(ErrorKind::io,
                  fmt::format("{} leads through {}, a symbolic link of {}; set BERTH_DIR to the "
                              "directory itself",
                              in_quotes(path_), in_quotes(part), user_name(about.st_uid)));
    }
    std::array<char, PATH_MAX> target{};
    const auto length = ::readlinkat(link, "", target.data(), target.size());
    if (length < 0) return file_error("open", path_);
    errno = ELOOP;
    if (++links_ > kMostLinks) return file_error("open", path_);
    const std::string_view text(target.data(), static_cast<std::size_t>(length));
    if (text.starts_with('/') && !go_to_root()) return file_error("open", "/");
    for (std::string& one : reversed_components(text)) left_.push_back(std::move(one));
    return {};
  }

  const std::string& path_;
  std::vector<std::string> left_;  // the next one last
  std::vector<std::string> done_;
  UniqueFd here_;
  int links_ = 0;
};

// By openat2(), which finds a mount point (EXDEV) before it asks the mounted file system anything.
UniqueFd open_on_same_mount(int directory, const std::string& name, int flags) {
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags | O_NOFOLLOW | O_CLOEXEC);
  how.resolve = RESOLVE_NO_XDEV;
  return UniqueFd(
      static_cast<int>(::syscall(SYS_openat2, directory, name.c_str(), &how, sizeof how)));
}

}  // namespace

Result<TrustedPath> resolve_trusted_path(const std::string& path) {
  return Resolver(path).run();
}

bool others_can_rename(const struct stat& directory, uid_t user) {
  const uid_t owner = directory.st_uid;
  if (owner != 0 && owner != user && is_identified(owner)) return true;
  return others_can_write(directory) && !is_sticky(directory);
}

UniqueFd make_directory_at(int parent, const std::string& name, mode_t mode) {
  if (::mkdirat(parent, name.c_str(), S_IRWXU) != 0) return {};
  UniqueFd made(::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  const auto give_up = [&] {
    const int reason = errno;
    ::unlinkat(parent, name.c_str(), AT_REMOVEDIR);
    errno = reason;
    return UniqueFd();
  };
  struct stat about {};
  if (!made || ::fstat(made.get(), &about) != 0) return give_up();
  // Another user who can rename in `parent` may have put another directory there. A set-group-ID
  // bit comes from the parent.
  const bool own = about.st_uid == ::geteuid();
  if (!own || (about.st_mode & (S_ISUID | S_ISVTX | S_IRWXG | S_IRWXO)) != 0) {
    errno = EPERM;
    return {};
  }
  if (!remove_access_lists(made.get()) || ::fchmod(made.get(), mode) != 0) return give_up();
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

std::int64_t plausible_seconds(std::int64_t seconds) {
  constexpr std::int64_t kLatest = 1LL << 33;  // the year 2242; in nanoseconds it fits into 64 bits
  return std::clamp<std::int64_t>(seconds, 0, kLatest);
}

bool is_mount_point(const struct statx& about) {
  return (about.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

bool look_at(int directory, const std::string& name, struct statx& about) {
  // AT_STATX_DONT_SYNC: FUSE answers from what the kernel knows.
  const bool known =
      ::statx(directory, name.c_str(), AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC,
              STATX_BASIC_STATS | STATX_BTIME, &about) == 0;
  if (known && !is_mount_point(about)) return true;
  if (!known) {
    // FUSE refuses every user but the one that mounted it, root included.
    const int reason = errno;
    const bool mounted =
        reason != ENOENT && !open_on_same_mount(directory, name, O_PATH) && errno == EXDEV;
    errno = reason;
    if (!mounted) return false;
  }
  about = {};
  about.stx_attributes = STATX_ATTR_MOUNT_ROOT;
  about.stx_uid = static_cast<uid_t>(-1);
  return true;
}

UniqueFd open_at(int directory, const std::string& name, int flags) {
  UniqueFd file = open_on_same_mount(directory, name, flags);
  if (file || (errno != ENOSYS && errno != EPERM)) return file;
  // Some containers forbid openat2(), and Linux has it since 5.6. A handle asks nothing of the file
  // system.
  const UniqueFd handle(::openat(directory, name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!handle) return {};
  struct statx about {};
  if (::statx(handle.get(), "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &about) != 0) {
    return {};
  }
  if (is_mount_point(about) || S_ISLNK(about.stx_mode)) {
    errno = is_mount_point(about) ? EXDEV : ELOOP;
    return {};
  }
  return UniqueFd(::open(fmt::format("/proc/self/fd/{}", handle.get()).c_str(), flags | O_CLOEXEC));
}

}  // namespace berth
