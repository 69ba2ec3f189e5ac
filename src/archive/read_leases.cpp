// Files to threads, or a stream in one; see lease_reading.h.
#include "archive/read_leases.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <system_error>
#include <thread>
#include <vector>

#include "cluster/store/history_stream.h"

namespace berth {
namespace {

// More would wait for the memory.
constexpr unsigned kMostThreads = 4;

}  // namespace

LeaseHistory read_leases(const std::string& archive, TimePoint since, std::optional<uid_t> user) {
  const std::vector<UserFolder> folders = user_folders(archive);
  const HistoryFiles found = history_files(folders, since, user);
  const std::vector<HistoryFile>& files = found.files;
  const std::int64_t since_ms = to_ms(since);
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    LeaseHistory part;
    const auto take = [&](const EntryView& entry) {
      if (entry.ended_ms < since_ms || (user && entry.uid != *user)) return;
      part.table.take(entry);
    };
    for (std::size_t i = next++; i < files.size(); i = next++) {
      off_t done = files[i].from;
      part.damaged += read_views(*files[i].folder, files[i].name, done, take);
    }
    return part;
  };
  const std::size_t threads = std::min<std::size_t>(
      {std::max(1U, std::thread::hardware_concurrency()), kMostThreads, files.size()});
  std::vector<std::future<LeaseHistory>> others;
  try {
    while (others.size() + 1 < threads) others.push_back(std::async(std::launch::async, work));
  } catch (const std::system_error&) {
    // No more threads for this user: it takes longer.
  }
  LeaseHistory history = work();
  history.truncated = found.truncated;
  for (auto& other : others) {
    const LeaseHistory part = other.get();
    history.table.merge(part.table);
    history.damaged += part.damaged;
  }
  return history;
}

Result<LeaseHistory> read_leases(const RedisUrl& url, TimePoint since, const WantView& want) {
  LeaseHistory history;
  RedisSession server(url);
  HistoryStream stream(url, since);
  for (;;) {
    const auto more = stream.next(server, [&](const EntryView& entry) {
      if (want(entry)) history.table.take(entry);
    });
    if (!more) return tl::make_unexpected(more.error());
    if (!*more) break;
  }
  history.damaged = stream.damaged();
  return history;
}

}  // namespace berth
