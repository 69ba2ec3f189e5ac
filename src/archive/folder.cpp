// The folders; see folder.h.
#include "archive/folder.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <tuple>
#include <unistd.h>
#include <utility>

#include "harbour/file_error.h"

namespace berth {
namespace {

constexpr mode_t kArchiveMode = 01777;
constexpr mode_t kFolderMode = 0755;
constexpr const char* kLock = ".lock";
// Somebody may have planted a folder of our name, which only he can remove: then we take another.
constexpr int kMostNames = 16;

UniqueFd open_folder(int at, const char* name) {
  return UniqueFd(::openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

// Made if it is not there; whoever made it, it is open then.
UniqueFd make_folder(int at, const char* name, mode_t mode) {
  const bool made = ::mkdirat(at, name, 0700) == 0;
  if (!made && errno != EEXIST) return {};
  UniqueFd folder = open_folder(at, name);
  if (made && folder) ::fchmod(folder.get(), mode);  // whatever the umask is
  return folder;
}

std::optional<uid_t> owner_of(const UniqueFd& folder) {
  struct stat about {};
  if (!folder || ::fstat(folder.get(), &about) != 0) return std::nullopt;
  return about.st_uid;
}

// Is there enough left for others? `errno` says if not.
bool has_room(int folder) {
  constexpr std::uint64_t kSpare = 1 << 20;
  struct statvfs about {};
  if (::fstatvfs(folder, &about) != 0) return false;
  errno = ENOSPC;
  return about.f_bavail * about.f_frsize >= kSpare;
}

std::string folder_name(uid_t uid, int number) {
  return number == 0 ? fmt::format("{}", uid) : fmt::format("{}-{}", uid, number);
}

// Of a folder's name: whose it claims to be.
std::optional<uid_t> claimed_by(std::string_view name) {
  uid_t uid = 0;
  const char* const end = name.data() + name.size();
  const auto [rest, problem] = std::from_chars(name.data(), end, uid);
  if (problem != std::errc() || (rest != end && *rest != '-')) return std::nullopt;
  return uid;
}

}  // namespace

std::string archive_path(const HarbourLocation& harbour) {
  if (harbour.path == kDefaultHarbour) return kDefaultArchive;
  return fmt::format("{}/{}", harbour.path, kArchiveInHarbour);
}

Result<UserFolder> own_folder(const std::string& archive) {
  // Where it is almost always: at the end of each job somebody waits for this.
  std::string usual = fmt::format("{}/{}", archive, folder_name(::geteuid(), 0));
  if (UniqueFd folder = open_folder(AT_FDCWD, usual.c_str()); owner_of(folder) == ::geteuid()) {
    if (!has_room(folder.get())) return file_error("write in", archive);
    return UserFolder{::geteuid(), std::move(usual), std::move(folder)};
  }
  const auto slash = archive.rfind('/');
  const UniqueFd above(::open(archive.substr(0, slash).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!above || !has_room(above.get())) return file_error("write in", archive);
  const UniqueFd place = make_folder(above.get(), archive.substr(slash + 1).c_str(), kArchiveMode);
  if (!place) return file_error("open the archive", archive);
  for (int number = 0; number < kMostNames; ++number) {
    const std::string name = folder_name(::geteuid(), number);
    UniqueFd folder = make_folder(place.get(), name.c_str(), kFolderMode);
    const auto owner = owner_of(folder);
    if (owner == ::geteuid()) {
      return UserFolder{*owner, fmt::format("{}/{}", archive, name), std::move(folder)};
    }
    if (!folder && errno != ENOTDIR && errno != ELOOP && errno != EACCES) {
      return file_error("make a folder", archive);
    }
  }
  return fail(ErrorKind::harbour,
              fmt::format("somebody has taken all names for your folder in {}", archive));
}

std::optional<UserFolder> existing_folder(const std::string& archive) {
  auto folders = user_folders(archive);
  const auto own = std::find_if(folders.begin(), folders.end(),
                                [](const UserFolder& folder) { return folder.uid == ::geteuid(); });
  if (own == folders.end()) return std::nullopt;
  return std::optional<UserFolder>(std::move(*own));
}

Result<UniqueFd> lock_folder(const UserFolder& folder) {
  UniqueFd file(::openat(folder.directory.get(), kLock,
                         O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  while (file && ::flock(file.get(), LOCK_EX) != 0) {
    if (errno != EINTR) file.reset();
  }
  if (!file) return file_error("lock", folder.path);
  return file;
}

std::vector<UserFolder> user_folders(const std::string& archive) {
  std::vector<UserFolder> folders;
  UniqueFd place = open_folder(AT_FDCWD, archive.c_str());
  if (!place) return folders;
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::fdopendir(place.get()), ::closedir);
  if (!listing) return folders;
  const int at = place.release();  // the listing's
  while (const dirent* entry = ::readdir(listing.get())) {
    const auto uid = claimed_by(entry->d_name);
    if (!uid) continue;
    UniqueFd folder = open_folder(at, entry->d_name);
    if (owner_of(folder) != uid) continue;
    folders.push_back({*uid, fmt::format("{}/{}", archive, entry->d_name), std::move(folder)});
  }
  std::sort(folders.begin(), folders.end(), [](const UserFolder& a, const UserFolder& b) {
    return std::tie(a.uid, a.path) < std::tie(b.uid, b.path);
  });
  return folders;
}

}  // namespace berth
