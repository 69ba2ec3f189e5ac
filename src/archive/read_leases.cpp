// Files to threads, or a stream in one; see read_leases.h.
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
constexpr unsigned kMaxThreads = 4;

}  // namespace

LeaseHistory read_leases(const std::string& archive, TimePoint since, std::optional<uid_t> user) {
  const std::vector<UserFolder> folders = open_user_folders(archive);
  const HistoryFiles selection = select_history_files(folders, since, user);
  const std::vector<HistoryFile>& files = selection.files;
  const std::int64_t since_ms = to_ms(since);
  std::atomic<std::size_t> next_file = 0;
  const auto read_files = [&] {
    LeaseHistory partial;
    const auto add_entry = [&](const EntryView& entry) {
      if (entry.ended_ms < since_ms || (user && entry.uid != *user)) return;
      partial.table.add(entry);
    };
    for (std::size_t i = next_file++; i < files.size(); i = next_file++) {
      off_t offset = files[i].offset;
      partial.damaged += read_entry_views(*files[i].folder, files[i].name, offset, add_entry);
    }
    return partial;
  };
  const std::size_t threads = std::min<std::size_t>(
      {std::max(1U, std::thread::hardware_concurrency()), kMaxThreads, files.size()});
  std::vector<std::future<LeaseHistory>> workers;
  try {
    while (workers.size() + 1 < threads)
      workers.push_back(std::async(std::launch::async, read_files));
  } catch (const std::system_error&) {
    // No more threads for this user: it takes longer.
  }
  LeaseHistory history = read_files();
  history.truncated = selection.truncated;
  for (auto& worker : workers) {
    const LeaseHistory partial = worker.get();
    history.table.merge(partial.table);
    history.damaged += partial.damaged;
  }
  return history;
}

Result<LeaseHistory> read_leases(const RedisUrl& url, TimePoint since,
                                 const EntryViewFilter& filter) {
  LeaseHistory history;
  RedisSession server(url);
  HistoryStream stream(url, since);
  for (;;) {
    const auto more = stream.read_next(server, [&](const EntryView& entry) {
      if (filter(entry)) history.table.add(entry);
    });
    if (!more) return tl::make_unexpected(more.error());
    if (!*more) break;
  }
  history.damaged = stream.damaged();
  return history;
}

}  // namespace berth
