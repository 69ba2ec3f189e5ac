// Reads history files by several threads, or the server's stream by one; see compact_history.h.
#include "archive/compact_history.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "cluster/store/history_stream.h"

namespace berth {
namespace {

// With more threads, memory bandwidth is the limit.
constexpr unsigned kMaxThreads = 4;

}  // namespace

CompactHistory read_compact_history(const std::string& archive, TimePoint since,
                                    std::optional<uid_t> user) {
  const std::vector<UserFolder> folders = open_user_folders(archive);
  const HistoryFiles selection = select_history_files(folders, since, user);
  const std::vector<HistoryFile>& files = selection.files;
  const std::int64_t since_ms = to_ms(since);
  std::atomic<std::size_t> next_file = 0;
  const auto read_files = [&] {
    CompactHistory partial;
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
  std::vector<std::future<CompactHistory>> workers;
  try {
    while (workers.size() + 1 < threads)
      workers.push_back(std::async(std::launch::async, read_files));
  } catch (const std::system_error&) {
    // The user's limit of threads is reached: continue with fewer.
  }
  CompactHistory history = read_files();
  history.truncated = selection.truncated;
  for (auto& worker : workers) {
    CompactHistory partial = worker.get();
    // The smaller table is copied into the larger one: a hostile history needs much memory.
    if (partial.table.leases().size() > history.table.leases().size())
      std::swap(partial.table, history.table);
    history.table.merge(partial.table);
    history.damaged += partial.damaged;
  }
  // A user's first line is of the lease that ended first: a longer lease may have begun before.
  HistoryStarts starts = find_history_starts(folders);
  for (const CompactLease& lease : history.table.leases()) {
    const TimePoint granted{std::chrono::milliseconds(lease.granted_ms)};
    TimePoint& start =
        starts.try_emplace(history.table.owners()[lease.owner].uid, granted).first->second;
    start = std::min(start, granted);
  }
  history.start = choose_history_start(starts, ::geteuid());
  return history;
}

Result<CompactHistory> read_compact_history(const RedisUrl& url, TimePoint since,
                                            const EntryViewFilter& filter) {
  CompactHistory history;
  RedisSession server(url);
  history.start = TRY(read_stream_start(server, url));
  HistoryStream stream(url, since);
  for (;;) {
    const bool has_more = TRY(stream.read_next(server, [&](const EntryView& entry) {
      if (!filter(entry)) return;
      history.table.add(entry);
      const TimePoint granted{std::chrono::milliseconds(entry.granted_ms)};
      history.start = std::min(history.start.value_or(granted), granted);
    }));
    if (!has_more) break;
  }
  history.damaged = stream.damaged();
  return history;
}

}  // namespace berth
