// Watching the files grow; see follow.h.
#include "archive/follow.h"

#include <array>
#include <fmt/format.h>
#include <sys/inotify.h>
#include <unistd.h>
#include <utility>

namespace berth {

HistoryFollower::HistoryFollower(std::string archive)
    : archive_(std::move(archive)), watch_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
  for (const UserFolder& folder : user_folders(archive_)) look(folder, nullptr);
}

std::vector<HistoryEntry> HistoryFollower::next() {
  std::array<char, 4096> events{};
  while (::read(watch_.get(), events.data(), events.size()) > 0) {
  }
  std::vector<HistoryEntry> entries;
  for (const UserFolder& folder : user_folders(archive_)) look(folder, &entries);
  return entries;
}

// Watched before it is read: what comes in between is seen twice rather than never.
void HistoryFollower::look(const UserFolder& folder, std::vector<HistoryEntry>* entries) {
  ::inotify_add_watch(watch_.get(), archive_.c_str(), IN_CREATE | IN_MOVED_TO | IN_ATTRIB);
  ::inotify_add_watch(watch_.get(), folder.path.c_str(), IN_MODIFY | IN_CREATE);
  for (const std::string& name : month_files(folder, {})) {
    off_t& done = read_[fmt::format("{}/{}", folder.path, name)];
    read_lines(folder, name, done, [&](HistoryEntry&& entry) {
      if (entries != nullptr) entries->push_back(std::move(entry));
    });
  }
}

}  // namespace berth
