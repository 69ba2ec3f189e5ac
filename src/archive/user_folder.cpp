// Finds, creates and opens the folders of users; see user_folder.h.
#include "archive/user_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <memory>
#include <optional>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <tuple>
#include <unistd.h>
#include <utility>

#include "base/descriptors.h"
#include "base/text.h"
#include "harbour/file_error.h"
#include "harbour/safe_directory.h"

namespace berth {
namespace {

constexpr mode_t kFolderMode = 0755;
constexpr const char* kLockFile = ".lock";
// Another user may have created a folder with the name of this user's, which only that user can
// remove. Then Berth tries the next name.
constexpr int kMaxFolderNames = 16;

UniqueFd open_folder(int at, const char* name) {
  return UniqueFd(::openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

// open_inside(), because another user may have made the folder, and mounted a file system on it
// that does not answer.
UniqueFd open_user_folder(int archive, const char* name) {
  return open_inside(archive, name, O_RDONLY | O_DIRECTORY);
}

// The only user who can write in the folder. nullopt if others can write in it: Berth never creates
// such a folder, so another user may have moved it here.
std::optional<uid_t> find_sole_owner(const UniqueFd& folder) {
  struct stat status {};
  if (!folder || ::fstat(folder.get(), &status) != 0) return std::nullopt;
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) return std::nullopt;
  return status.st_uid;
}

// Is there enough free space left for leases after `bytes` more are written? Sets errno if not.
bool has_free_space(int folder, std::uint64_t bytes = 0) {
  constexpr std::uint64_t kMinFreeBytes = 1 << 20;
  struct statvfs status {};
  if (::fstatvfs(folder, &status) != 0) return false;
  errno = ENOSPC;
  return status.f_bavail * status.f_frsize >= kMinFreeBytes + bytes;
}

std::string folder_name(uid_t uid, int number) {
  return number == 0 ? fmt::format("{}", uid) : fmt::format("{}-{}", uid, number);
}

// The uid in a folder's name. Only names that folder_name() can return count: otherwise a user
// could make other users open any number of folders.
std::optional<uid_t> parse_folder_name(std::string_view name) {
  const auto uid = parse_integer<uid_t>(name.substr(0, name.find('-')));
  for (int number = 0; uid && number < kMaxFolderNames; ++number) {
    if (name == folder_name(*uid, number)) return uid;
  }
  return std::nullopt;
}

// For containers that forbid openat2(). Opens a handle (O_PATH) first, which sends no request to
// the file system, and checks that it is on the same file system.
UniqueFd open_on_same_device(int directory, const char* name, int flags) {
  const UniqueFd handle(::openat(directory, name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!handle) return {};
  const auto read_status = [](int fd, struct statx& status) {
    return ::statx(fd, "", AT_EMPTY_PATH | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC, STATX_TYPE,
                   &status) == 0;
  };
  struct statx outer {};
  struct statx inner {};
  if (!read_status(directory, outer) || !read_status(handle.get(), inner)) return {};
  if (S_ISLNK(inner.stx_mode)) {
    errno = ELOOP;
    return {};
  }
  if (outer.stx_dev_major != inner.stx_dev_major || outer.stx_dev_minor != inner.stx_dev_minor) {
    errno = EXDEV;
    return {};
  }
  return UniqueFd(::open(fmt::format("/proc/self/fd/{}", handle.get()).c_str(),
                         (flags & ~O_NOFOLLOW) | O_CLOEXEC));
}

}  // namespace

std::string archive_path(const HarbourLocation& harbour) {
  if (harbour.path == kDefaultHarbour) return kDefaultArchive;
  return fmt::format("{}/{}", harbour.path, kArchiveInHarbour);
}

Result<UserFolder> open_own_folder(const std::string& archive) {
  // The usual case takes few system calls, because the end of each job waits for it. The archive is
  // opened in a step of its own with O_NOFOLLOW: another user may have put a symbolic link there.
  const std::string default_name = folder_name(::geteuid(), 0);
  if (const UniqueFd archive_fd = open_folder(AT_FDCWD, archive.c_str())) {
    UniqueFd folder = open_user_folder(archive_fd.get(), default_name.c_str());
    if (find_sole_owner(folder) == ::geteuid()) {
      if (!has_free_space(folder.get())) return file_error("write in", archive);
      return UserFolder{::geteuid(), fmt::format("{}/{}", archive, default_name),
                        std::move(folder)};
    }
  }
  const auto slash = archive.rfind('/');
  const UniqueFd parent(::open(archive.substr(0, slash).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!parent || !has_free_space(parent.get())) return file_error("write in", archive);
  const std::string archive_name = archive.substr(slash + 1);
  UniqueFd archive_fd = make_directory_at(parent.get(), archive_name, kHarbourMode);
  if (!archive_fd && errno == EEXIST) archive_fd = open_folder(parent.get(), archive_name.c_str());
  if (!archive_fd) return file_error("open the archive", archive);
  for (int number = 0; number < kMaxFolderNames; ++number) {
    const std::string name = folder_name(::geteuid(), number);
    UniqueFd folder = make_directory_at(archive_fd.get(), name, kFolderMode);
    if (!folder && errno == EEXIST) folder = open_user_folder(archive_fd.get(), name.c_str());
    const auto owner = find_sole_owner(folder);
    if (owner == ::geteuid()) {
      return UserFolder{*owner, fmt::format("{}/{}", archive, name), std::move(folder)};
    }
    if (!folder && errno != ENOTDIR && errno != ELOOP && errno != EACCES && errno != EXDEV) {
      return file_error("create a folder in", archive);
    }
  }
  return fail(ErrorKind::io, fmt::format("cannot create a folder for you in {}: other users "
                                         "created every name that Berth uses for "
                                         "yours; an administrator can remove those",
                                         archive));
}

std::optional<UserFolder> find_own_folder(const std::string& archive) {
  const UniqueFd archive_fd = open_folder(AT_FDCWD, archive.c_str());
  if (!archive_fd) return std::nullopt;
  for (int number = 0; number < kMaxFolderNames; ++number) {
    const std::string name = folder_name(::geteuid(), number);
    UniqueFd folder = open_user_folder(archive_fd.get(), name.c_str());
    if (find_sole_owner(folder) != ::geteuid()) continue;
    return UserFolder{::geteuid(), fmt::format("{}/{}", archive, name), std::move(folder)};
  }
  return std::nullopt;
}

Result<void> replace_file(const UserFolder& folder, const std::string& name,
                          const std::string& content) {
  // One name for each file, so that a process that is killed here leaves no more than one.
  const std::string temporary = fmt::format(".{}.new", name);
  const int at = folder.directory.get();
  if (!has_free_space(at, content.size())) return file_error("write in", folder.path);
  const UniqueFd file(
      ::openat(at, temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (file) ::fchmod(file.get(), 0644);  // other users must read it, whatever the umask is
  const bool written = file && write_all(file.get(), content);
  if (written && ::renameat(at, temporary.c_str(), at, name.c_str()) == 0) return {};
  auto error = file_error("write in", folder.path);
  ::unlinkat(at, temporary.c_str(), 0);
  return error;
}

Result<UniqueFd> lock_folder(const UserFolder& folder) {
  UniqueFd file(::openat(folder.directory.get(), kLockFile,
                         O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  while (file && ::flock(file.get(), LOCK_EX) != 0) {
    if (errno != EINTR) file.reset();
  }
  if (!file) return file_error("lock", folder.path);
  return file;
}

std::vector<UserFolder> open_user_folders(const std::string& archive) {
  std::vector<UserFolder> folders;
  UniqueFd archive_fd = open_folder(AT_FDCWD, archive.c_str());
  if (!archive_fd) return folders;
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::fdopendir(archive_fd.get()), ::closedir);
  if (!listing) return folders;
  const int at = archive_fd.release();  // the listing owns the descriptor now
  while (const dirent* entry = ::readdir(listing.get())) {
    const auto uid = parse_folder_name(entry->d_name);
    if (!uid) continue;
    UniqueFd folder = open_inside(at, entry->d_name, O_RDONLY | O_DIRECTORY);
    if (find_sole_owner(folder) != uid) continue;
    folders.push_back({*uid, fmt::format("{}/{}", archive, entry->d_name), std::move(folder)});
  }
  std::sort(folders.begin(), folders.end(), [](const UserFolder& a, const UserFolder& b) {
    return std::tie(a.uid, a.path) < std::tie(b.uid, b.path);
  });
  return folders;
}

UniqueFd open_inside(int directory, const char* name, int flags) {
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS;
  UniqueFd file(static_cast<int>(::syscall(SYS_openat2, directory, name, &how, sizeof how)));
  if (file || (errno != ENOSYS && errno != EPERM)) return file;
  return open_on_same_device(directory, name, flags | O_NONBLOCK);
}

}  // namespace berth
