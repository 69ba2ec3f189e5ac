// The file of what is yet to be sent; see spool.h.
//
// Two locks, of files that nobody else can open. That of the folder is held for moments, by who
// adds a line and by who finds that there are no more. That of the file is held by who sends, and
// nobody waits for it.
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
// Of weeks without a server. What is more is in this host's files alone.
constexpr off_t kMaxFileSize = 64 << 20;
// In one exchange with the server.
constexpr std::size_t kMaxBytesPerSend = 1 << 20;

// Nobody else reads it, or could lock it.
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

// Sends the file's lines from `offset` on, which becomes where they end.
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
    if (auto sent = send(); !sent) return sent;
  }
  offset = lines.offset();
  return pending.empty() ? Result<void>() : send();
}

}  // namespace

Result<void> append_unsent(const UserFolder& folder, const std::string& line) {
  const auto folder_lock = lock_folder(folder);
  if (!folder_lock) return tl::make_unexpected(folder_lock.error());
  const UniqueFd file = open_unsent_file(folder, O_RDWR | O_APPEND | O_CREAT);
  if (!file) return file_error("keep what is to be sent in", folder.path);
  const off_t before = file_size(file);
  errno = EFBIG;
  if (before > kMaxFileSize) return file_error("keep what is to be sent in", folder.path);
  // Half a line, of who was killed, must not spoil this one.
  char last = '\n';
  const bool cut = before > 0 && ::pread(file.get(), &last, 1, before - 1) == 1 && last != '\n';
  const std::string text = fmt::format("{}{}\n", cut ? "\n" : "", line);
  const auto written = ::write(file.get(), text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size())) return {};
  if (written >= 0) errno = ENOSPC;
  return file_error("keep what is to be sent in", folder.path);
}

Result<void> send_unsent(const UserFolder& folder, const RedisUrl& url) {
  const UniqueFd file = open_unsent_file(folder, O_RDWR);
  if (!file || file_size(file) == 0) return {};
  RedisSession server(url);
  if (server.was_recently_unavailable() || !lock_file(file.get(), LOCK_EX | LOCK_NB)) return {};
  off_t offset = 0;
  for (;;) {
    if (auto sent = send_from(folder, server, url, offset); !sent) return sent;
    const auto folder_lock = lock_folder(folder);
    if (!folder_lock) return tl::make_unexpected(folder_lock.error());
    // What was added meanwhile is sent, too: who added it may have left it to us.
    if (LineReader(folder.directory.get(), kFileName, offset).next()) continue;
    if (::ftruncate(file.get(), 0) != 0) return file_error("write in", folder.path);
    // Before the folder's: who adds a line from now on sends it himself.
    ::flock(file.get(), LOCK_UN);
    return {};
  }
}

}  // namespace berth
