// Reads new lines of history files and of the server's stream; see follow_history.h.
#include "archive/follow_history.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <fmt/format.h>
#include <sys/inotify.h>
#include <unistd.h>
#include <utility>

#include "archive/entry_view.h"

namespace berth {
namespace {

constexpr off_t kMaxNewBytes = 8 << 20;

}  // namespace

FileFollower::FileFollower(std::string archive)
    : archive_(std::move(archive)), inotify_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
  for (const UserFolder& folder : open_user_folders(archive_)) read_folder(folder, nullptr);
}

std::vector<HistoryEntry> FileFollower::read_new_entries() {
  std::array<char, 4096> events{};
  while (::read(inotify_.get(), events.data(), events.size()) > 0) {
  }
  std::vector<HistoryEntry> entries;
  for (const UserFolder& folder : open_user_folders(archive_)) read_folder(folder, &entries);
  return entries;
}

// Adds the watches before it reads: a line that is written in between causes one event too many,
// but is not missed. Without `entries` it only skips the existing lines.
void FileFollower::read_folder(const UserFolder& folder, std::vector<HistoryEntry>* entries) {
  ::inotify_add_watch(inotify_.get(), archive_.c_str(), IN_CREATE | IN_MOVED_TO | IN_ATTRIB);
  ::inotify_add_watch(inotify_.get(), folder.path.c_str(), IN_MODIFY | IN_CREATE);
  // New lines are about leases that end now, so older files cannot grow. A day allows for clocks
  // that differ.
  const auto since = std::chrono::system_clock::now() - std::chrono::hours(24);
  for (const std::string& name : list_month_files(folder, since)) {
    off_t& offset = offsets_[fmt::format("{}/{}", folder.path, name)];
    // Jobs of one user cannot have written more than this since the last call: skip the rest.
    offset = std::max(offset, file_size(folder, name) - kMaxNewBytes);
    read_entry_views(folder, name, offset, [&](const EntryView& view) {
      if (entries != nullptr) entries->push_back(make_entry(view));
    });
  }
}

StreamFollower::StreamFollower(const RedisUrl& url, HistoryStream stream)
    : url_(url), server_(url), stream_(std::move(stream)) {
  open_wait_connection();
}

void StreamFollower::open_wait_connection() {
  auto opened = RedisConnection::open(url_);
  if (opened && opened->send(stream_.wait_command())) wait_connection_ = std::move(*opened);
}

// Reads the stream even if the blocking read has not returned: the connection may be broken.
std::vector<HistoryEntry> StreamFollower::read_new_entries() {
  bool still_waiting = false;
  if (wait_connection_) {
    const auto reply = wait_connection_->receive();
    still_waiting = reply && !*reply;
    if (!reply) wait_connection_.reset();
  }
  std::vector<HistoryEntry> entries;
  for (;;) {
    const auto has_more = stream_.read_next(
        server_, [&](const EntryView& view) { entries.push_back(make_entry(view)); });
    if (!has_more) wait_connection_.reset();
    if (!has_more || !*has_more) break;
  }
  if (wait_connection_ && !still_waiting && !wait_connection_->send(stream_.wait_command()))
    wait_connection_.reset();
  if (!wait_connection_ && !server_.was_recently_unavailable()) open_wait_connection();
  return entries;
}

Result<std::unique_ptr<HistoryFollower>> follow_history(const HarbourLocation& harbour) {
  if (!harbour.url) {
    return std::make_unique<FileFollower>(archive_path(harbour));
  }
  HistoryStream stream = TRY(HistoryStream::open_at_end(*harbour.url));
  return std::make_unique<StreamFollower>(*harbour.url, std::move(stream));
}

}  // namespace berth
