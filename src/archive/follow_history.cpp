// Watching files and a stream grow; see follow.h.
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

constexpr off_t kMostNewBytes = 8 << 20;

}  // namespace

FileFollower::FileFollower(std::string archive)
    : archive_(std::move(archive)), watch_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
  for (const UserFolder& folder : user_folders(archive_)) look(folder, nullptr);
}

std::vector<HistoryEntry> FileFollower::next() {
  std::array<char, 4096> events{};
  while (::read(watch_.get(), events.data(), events.size()) > 0) {
  }
  std::vector<HistoryEntry> entries;
  for (const UserFolder& folder : user_folders(archive_)) look(folder, &entries);
  return entries;
}

// Watched before it is read: what comes in between is seen twice rather than never.
void FileFollower::look(const UserFolder& folder, std::vector<HistoryEntry>* entries) {
  ::inotify_add_watch(watch_.get(), archive_.c_str(), IN_CREATE | IN_MOVED_TO | IN_ATTRIB);
  ::inotify_add_watch(watch_.get(), folder.path.c_str(), IN_MODIFY | IN_CREATE);
  // What is written from now on ends from now on. A day for clocks that differ.
  const auto since = std::chrono::system_clock::now() - std::chrono::hours(24);
  for (const std::string& name : month_files(folder, since)) {
    off_t& done = read_[fmt::format("{}/{}", folder.path, name)];
    // Of more than a user's jobs can have written meanwhile, only the end.
    done = std::max(done, file_size(folder, name) - kMostNewBytes);
    read_views(folder, name, done, [&](const EntryView& view) {
      if (entries != nullptr) entries->push_back(entry_of(view));
    });
  }
}

StreamFollower::StreamFollower(const RedisUrl& url, HistoryStream stream)
    : url_(url), server_(url), stream_(std::move(stream)) {
  listen();
}

void StreamFollower::listen() {
  auto opened = RedisConnection::open(url_);
  if (opened && opened->send(stream_.wait_words())) ears_ = std::move(*opened);
}

// Asked also where nothing was heard: a connection can be cut without a word.
std::vector<HistoryEntry> StreamFollower::next() {
  bool waits = false;
  if (ears_) {
    const auto heard = ears_->receive();
    waits = heard && !*heard;
    if (!heard) ears_.reset();
  }
  std::vector<HistoryEntry> entries;
  for (;;) {
    const auto more =
        stream_.next(server_, [&](const EntryView& view) { entries.push_back(entry_of(view)); });
    if (!more) ears_.reset();
    if (!more || !*more) break;
  }
  if (ears_ && !waits && !ears_->send(stream_.wait_words())) ears_.reset();
  if (!ears_ && !server_.was_just_away()) listen();
  return entries;
}

Result<std::unique_ptr<HistoryFollower>> follow_history(const HarbourLocation& harbour) {
  if (!harbour.url) {
    return std::unique_ptr<HistoryFollower>(std::make_unique<FileFollower>(archive_path(harbour)));
  }
  auto stream = HistoryStream::from_now_on(*harbour.url);
  if (!stream) return tl::make_unexpected(stream.error());
  return std::unique_ptr<HistoryFollower>(
      std::make_unique<StreamFollower>(*harbour.url, std::move(*stream)));
}

}  // namespace berth
