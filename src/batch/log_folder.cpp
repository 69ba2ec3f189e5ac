// Opens log folders and logs; see log_folder.h.
#include "batch/log_folder.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <optional>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "base/text.h"
#include "base/users.h"

namespace berth::batch {
namespace {

constexpr mode_t kFileMode = 0666;  // reduced by the user's umask
constexpr int kSafeOpenFlags = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

tl::unexpected<Error> folder_error(const std::string& path, const std::string& why) {
  return fail(ErrorKind::io,
              fmt::format("batch: the log folder {} cannot be used: {}; choose another with --logs",
                          in_quotes(path), why));
}

struct PathParts {
  std::string parent;
  std::string name;
};

// Splits a path into its folder and its name. The name of "/" is ".".
PathParts split_path(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  const auto slash = path.rfind('/');
  if (slash == std::string_view::npos) return {".", std::string(path)};
  const std::string_view name = path.substr(slash + 1);
  return {std::string(path.substr(0, std::max<std::size_t>(slash, 1))),
          std::string(name.empty() ? "." : name)};
}

// The target of a link that was opened with O_PATH.
std::optional<std::string> read_link(int link) {
  std::array<char, PATH_MAX> text{};
  const ssize_t size = ::readlinkat(link, "", text.data(), text.size());
  if (size <= 0) return std::nullopt;
  return std::string(text.data(), static_cast<std::size_t>(size));
}

// Opens a directory that belongs to this user. Follows a link at its name if the link belongs to
// this user; after such a link also links of root. Each name is opened once, without following it,
// and the checks are made on the open file: another user who replaces the name meanwhile has no
// effect. The error is the reason, as text.
tl::expected<UniqueFd, std::string> open_own_directory(std::string path) {
  constexpr int kMaxLinks = 40;  // the kernel's limit
  const auto failed = [] { return tl::make_unexpected(std::string(std::strerror(errno))); };
  UniqueFd parent;
  for (int links = 0; links <= kMaxLinks; ++links) {
    const PathParts parts = split_path(path);
    const int from = parent ? parent.get() : AT_FDCWD;
    parent = UniqueFd(::openat(from, parts.parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!parent) return failed();
    const UniqueFd entry(
        ::openat(parent.get(), parts.name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat info {};
    if (!entry || ::fstat(entry.get(), &info) != 0) return failed();
    const bool is_link = S_ISLNK(info.st_mode);
    const bool trusted = info.st_uid == ::geteuid() || (is_link && links > 0 && info.st_uid == 0);
    if (!trusted) {
      return tl::make_unexpected(fmt::format("it belongs to {}", user_name(info.st_uid)));
    }
    if (!is_link) {
      UniqueFd directory(::openat(entry.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      if (!directory) return failed();
      return directory;
    }
    const auto target = read_link(entry.get());
    if (!target) return failed();
    path = *target;
  }
  errno = ELOOP;
  return failed();
}

// Clears O_NONBLOCK: the job inherits the file as its output.
UniqueFd make_blocking(UniqueFd file) {
  if (file) ::fcntl(file.get(), F_SETFL, O_APPEND);
  return file;
}

}  // namespace

bool is_own_file(int file) {
  struct stat info {};
  return ::fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == ::geteuid() &&
         info.st_nlink == 1;
}

Result<LogFolder> LogFolder::open(const std::string& path) {
  std::error_code problem;
  std::filesystem::create_directories(path, problem);
  struct stat info {};
  if (problem && ::lstat(path.c_str(), &info) != 0) return folder_error(path, problem.message());
  auto directory = open_own_directory(path);
  if (!directory) return folder_error(path, directory.error());
  return LogFolder(path, std::move(*directory));
}

bool LogFolder::is_this_folder(const std::string& parent) const {
  // First by name: if the folder was moved, another directory may have its name now.
  const auto normal = [](const std::string& folder) {
    return std::filesystem::path(folder + "/.").lexically_normal();
  };
  if (normal(parent) == normal(path_)) return true;
  struct stat named {};
  struct stat opened {};
  return ::stat(parent.c_str(), &named) == 0 && ::fstat(directory_.get(), &opened) == 0 &&
         named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
}

UniqueFd LogFolder::open_file(const std::string& path, int flags) const {
  const auto [parent, name] = split_path(path);
  return UniqueFd(is_this_folder(parent)
                      ? ::openat(directory_.get(), name.c_str(), flags | kSafeOpenFlags, kFileMode)
                      : ::open(path.c_str(), flags | kSafeOpenFlags, kFileMode));
}

UniqueFd LogFolder::reopen_log(const std::string& name) const {
  UniqueFd file(::openat(directory_.get(), name.c_str(), O_WRONLY | O_APPEND | kSafeOpenFlags));
  if (file && !is_own_file(file.get())) {
    errno = EPERM;
    return {};
  }
  return make_blocking(std::move(file));
}

UniqueFd LogFolder::open_log(const std::string& name, bool fresh) const {
  if (!fresh) {
    if (UniqueFd file = reopen_log(name)) return file;
  }
  if (::unlinkat(directory_.get(), name.c_str(), 0) != 0 && errno != ENOENT) return {};
  return make_blocking(
      UniqueFd(::openat(directory_.get(), name.c_str(),
                        O_WRONLY | O_APPEND | O_CREAT | O_EXCL | kSafeOpenFlags, kFileMode)));
}

void LogFolder::remove_if_empty(const std::string& name) const {
  struct stat info {};
  if (::fstatat(directory_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
      S_ISREG(info.st_mode) && info.st_size == 0) {
    ::unlinkat(directory_.get(), name.c_str(), 0);
  }
}

}  // namespace berth::batch
