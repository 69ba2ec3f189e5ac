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

#include "archive/lines.h"
#include "cluster/redis/session.h"
#include "cluster/store/history_stream.h"
#include "harbour/file_error.h"

namespace berth {
namespace {

constexpr const char* kFile = "unsent.jsonl";
// Of weeks without a server. What is more is in this host's files alone.
constexpr off_t kMostBytes = 64 << 20;
// In one exchange with the server.
constexpr std::size_t kMostAtOnce = 1 << 20;

// Nobody else reads it, or could lock it.
UniqueFd open_spool(const UserFolder& folder, int flags) {
  return UniqueFd(
      ::openat(folder.directory.get(), kFile, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
}

bool lock(int fd, int how) {
  while (::flock(fd, how) != 0) {
    if (errno != EINTR) return false;
  }
  return true;
}

off_t size_of(const UniqueFd& file) {
  struct stat about {};
  return ::fstat(file.get(), &about) == 0 ? about.st_size : 0;
}

// Sends the file's lines from `offset` on, which becomes where they end.
Result<void> send_from(const UserFolder& folder, RedisSession& server, const RedisUrl& url,
                       off_t& offset) {
  Lines lines(folder.directory.get(), kFile, offset);
  std::vector<std::string> some;
  std::size_t bytes = 0;
  const auto send = [&] {
    bytes = 0;
    return send_lines(server, url, std::exchange(some, {}));
  };
  while (const auto line = lines.next()) {
    if (line->empty()) continue;
    some.emplace_back(*line);
    bytes += line->size();
    if (bytes < kMostAtOnce) continue;
    if (auto sent = send(); !sent) return sent;
  }
  offset = lines.offset();
  return some.empty() ? Result<void>() : send();
}

}  // namespace

Result<void> keep_unsent(const UserFolder& folder, const std::string& line) {
  const auto alone = lock_folder(folder);
  if (!alone) return tl::make_unexpected(alone.error());
  const UniqueFd file = open_spool(folder, O_RDWR | O_APPEND | O_CREAT);
  if (!file) return file_error("keep what is to be sent in", folder.path);
  const off_t before = size_of(file);
  errno = EFBIG;
  if (before > kMostBytes) return file_error("keep what is to be sent in", folder.path);
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
  const UniqueFd file = open_spool(folder, O_RDWR);
  if (!file || size_of(file) == 0) return {};
  RedisSession server(url);
  if (server.was_just_away() || !lock(file.get(), LOCK_EX | LOCK_NB)) return {};
  off_t offset = 0;
  for (;;) {
    if (auto sent = send_from(folder, server, url, offset); !sent) return sent;
    const auto alone = lock_folder(folder);
    if (!alone) return tl::make_unexpected(alone.error());
    // What was added meanwhile is sent, too: who added it may have left it to us.
    if (Lines(folder.directory.get(), kFile, offset).next()) continue;
    if (::ftruncate(file.get(), 0) != 0) return file_error("write in", folder.path);
    // Before the folder's: who adds a line from now on sends it himself.
    ::flock(file.get(), LOCK_UN);
    return {};
  }
}

}  // namespace berth
