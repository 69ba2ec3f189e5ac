// The file of history lines that are yet to be sent; see unsent_history.h.
//
// There are two locks, both on files that other users cannot open. A process holds the folder's
// lock for a moment, while it appends a line or checks that there are no more lines. The process
// that sends holds the file's lock, and other processes do not wait for it.
#include "cluster/store/unsent_history.h"

#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "archive/line_reader.h"
#include "cluster/redis/session.h"
#include "cluster/store/history_stream.h"
#include "harbour/file_error.h"

namespace berth {
namespace {

constexpr const char* kFileName = "unsent.jsonl";
// Enough for weeks without a server. Further lines are only in this host's own history files.
constexpr off_t kMaxFileSize = 64 << 20;
// About this much is sent in one round trip.
constexpr std::size_t kMaxBytesPerSend = 1 << 20;

// With a mode that keeps other users from reading or locking the file.
UniqueFd open_unsent_file(const UserFolder& folder, int flags) {
  return UniqueFd(::openat(folder.directory.get(), kFileName,
                           flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
}

bool lock_file(int fd, int how) {
  while (::flock(fd, how) != 0) {
    if (errno != EINTR) return false;
  }
  return true;
}

off_t file_size(const UniqueFd& file) {
  struct stat file_status {};
  return ::fstat(file.get(), &file_status) == 0 ? file_status.st_size : 0;
}

// Sends the file's lines from `offset` on, and sets `offset` to their end.
Result<void> send_from(const UserFolder& folder, RedisSession& server, const RedisUrl& url,
                       off_t& offset) {
  LineReader lines(folder.directory.get(), kFileName, offset);
  std::vector<std::string> pending;
  std::size_t bytes = 0;
  const auto send = [&] {
    bytes = 0;
    return append_to_stream(server, url, std::exchange(pending, {}));
  };
  while (const auto line = lines.next()) {
    if (line->empty()) continue;
    pending.emplace_back(*line);
    bytes += line->size();
    if (bytes < kMaxBytesPerSend) continue;
    TRY(send());
  }
  offset = lines.offset();
  return pending.empty() ? Result<void>() : send();
}

}  // namespace

Result<void> append_unsent(const UserFolder& folder, const std::string& line) {
  const auto folder_lock = TRY(lock_folder(folder));
  const UniqueFd file = open_unsent_file(folder, O_RDWR | O_APPEND | O_CREAT);
  if (!file) return file_error("save unsent history in", folder.path);
  const off_t before = file_size(file);
  errno = EFBIG;
  if (before > kMaxFileSize) return file_error("save unsent history in", folder.path);
  // A process that was killed may have left half a line, which must not spoil this one.
  char last = '\n';
  const bool cut = before > 0 && ::pread(file.get(), &last, 1, before - 1) == 1 && last != '\n';
  const std::string text = fmt::format("{}{}\n", cut ? "\n" : "", line);
  const auto written = ::write(file.get(), text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size())) return {};
  if (written >= 0) errno = ENOSPC;
  return file_error("save unsent history in", folder.path);
}

Result<void> send_unsent(const UserFolder& folder, const RedisUrl& url) {
  const UniqueFd file = open_unsent_file(folder, O_RDWR);
  if (!file || file_size(file) == 0) return {};
  RedisSession server(url);
  if (server.was_recently_unavailable() || !lock_file(file.get(), LOCK_EX | LOCK_NB)) return {};
  off_t offset = 0;
  for (;;) {
    TRY(send_from(folder, server, url, offset));
    const auto folder_lock = TRY(lock_folder(folder));
    // Lines that were appended meanwhile are sent, too: the process that appended them may have
    // found the file locked.
    if (LineReader(folder.directory.get(), kFileName, offset).next()) continue;
    if (::ftruncate(file.get(), 0) != 0)
      return file_error("truncate the unsent history in", folder.path);
    // Unlocked before the folder: a process that appends a line from now on can lock the file, and
    // sends the line itself.
    ::flock(file.get(), LOCK_UN);
    return {};
  }
}

}  // namespace berth
