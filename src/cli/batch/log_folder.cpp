// Opening of logs; see log_folder.h.
#include "cli/batch/log_folder.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "base/text.h"
#include "base/users.h"

namespace berth::batch {
namespace {

constexpr mode_t kMode = 0666;  // as the user's umask has it
constexpr int kSafe = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

tl::unexpected<Error> unusable(const std::string& path, const std::string& why) {
  return fail(ErrorKind::harbour,
              fmt::format("batch: the folder {} for the logs cannot be used: {}; choose another by "
                          "--logs",
                          in_quotes(path), why));
}

// A job must not inherit O_NONBLOCK with its output.
UniqueFd blocking(UniqueFd file) {
  if (file) ::fcntl(file.get(), F_SETFL, O_APPEND);
  return file;
}

}  // namespace

bool is_own_file(int file) {
  struct stat about {};
  return ::fstat(file, &about) == 0 && S_ISREG(about.st_mode) && about.st_uid == ::geteuid() &&
         about.st_nlink == 1;
}

Result<LogFolder> LogFolder::open(const std::string& path) {
  std::error_code problem;
  std::filesystem::create_directories(path, problem);
  struct stat about {};
  if (::lstat(path.c_str(), &about) != 0) {
    return unusable(path, problem ? problem.message() : std::strerror(errno));
  }
  // A link of the user's own may lead elsewhere; one of another user's may not.
  const auto of_another = [&] { return fmt::format("it belongs to {}", user_name(about.st_uid)); };
  if (about.st_uid != ::geteuid()) return unusable(path, of_another());
  UniqueFd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory || ::fstat(directory.get(), &about) != 0) {
    return unusable(path, std::strerror(errno));
  }
  if (about.st_uid != ::geteuid()) return unusable(path, of_another());
  return LogFolder(path, std::move(directory));
}

UniqueFd LogFolder::reopen_log(const std::string& name) const {
  UniqueFd file(::openat(directory_.get(), name.c_str(), O_WRONLY | O_APPEND | kSafe));
  if (file && !is_own_file(file.get())) {
    errno = EPERM;
    return {};
  }
  return blocking(std::move(file));
}

UniqueFd LogFolder::open_log(const std::string& name, bool fresh) const {
  if (!fresh) {
    if (UniqueFd file = reopen_log(name)) return file;
  }
  if (::unlinkat(directory_.get(), name.c_str(), 0) != 0 && errno != ENOENT) return {};
  return blocking(UniqueFd(::openat(directory_.get(), name.c_str(),
                                    O_WRONLY | O_APPEND | O_CREAT | O_EXCL | kSafe, kMode)));
}

void LogFolder::remove_if_empty(const std::string& name) const {
  struct stat about {};
  if (::fstatat(directory_.get(), name.c_str(), &about, AT_SYMLINK_NOFOLLOW) == 0 &&
      S_ISREG(about.st_mode) && about.st_size == 0) {
    ::unlinkat(directory_.get(), name.c_str(), 0);
  }
}

}  // namespace berth::batch
