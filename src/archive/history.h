// What happened: a line of JSON for each lease that has ended, in a file for each month.
//
// docs/history.md describes the lines, and why they are no database. A line is written at once, by
// one call: it is there whole or, on a full disk, damaged, and then it alone is lost. Lines are
// only ever appended, by the user whose folder it is.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "archive/user_folder.h"
#include "base/quantity.h"
#include "cluster/redis/url.h"
#include "schedule/plan.h"

namespace berth {

enum class Ending : std::uint8_t {
  running,   // nobody has seen its end yet
  exited,    // with `code`
  killed,    // by the signal `code`
  released,  // given back by who held it
  lost,      // its holder was gone, some time before `ended`
};

// "exited", in the lines and in JSON.
const char* ending_name(Ending ending);
std::optional<Ending> parse_ending(std::string_view word);
// Of two lines about one lease: has the writer of `one` seen more of its end?
bool is_more_final(Ending one, Ending other);
// Of two lines about one lease: did what its holder left behind keep it, after `seen` was written,
// until somebody found it `lost`? Then the later time is its end.
bool lost_after_end(Ending lost, Ending seen);

struct HistoryGpu {
  std::string uuid;
  std::string index;  // as people saw it then; empty if nobody knows
  std::string name;
  // What was measured while it was held, if anything was.
  std::optional<Bytes> peak{};                // the most that the job had on it
  std::optional<unsigned> utilization_pct{};  // the card's, on average
};

struct HistoryEntry {
  std::string id;
  uid_t uid = 0;
  std::string command;
  std::string label;
  std::string job;           // its type, or nothing
  std::string parent_lease;  // the lease that it was carved out of, or nothing
  std::vector<HistoryGpu> gpus;
  std::optional<Bytes> memory;  // reserved on each; nothing: the whole GPU
  TimePoint asked;
  TimePoint granted;
  TimePoint ended;  // when it was seen; for one that runs, when that was written
  Ending ending = Ending::running;
  int code = 0;
  std::optional<std::chrono::milliseconds> idle;  // how long none of its GPUs was utilized
  // Of a history of several hosts: where it was, and the name of `uid` there. Else empty.
  std::string host{};
  std::string user{};
};

// Tells a lease from all others: an id says nothing of another user's lease, nor of another host's.
struct LeaseKey {
  std::string host;
  uid_t uid = 0;
  std::string id;

  auto operator<=>(const LeaseKey&) const = default;
};
inline LeaseKey lease_key(const HistoryEntry& entry) {
  return {entry.host, entry.uid, entry.id};
}

// What a line has at most, in bytes (and GPUs). Whatever is longer is cut, when a line is written
// and when it is read: its writer may be another user, or an old version of berth.
struct EntryLimits {
  static constexpr std::size_t kIdBytes = 64;
  static constexpr std::size_t kCommandBytes = 4096;
  static constexpr std::size_t kLabelBytes = 1024;
  static constexpr std::size_t kJobBytes = 1024;
  static constexpr std::size_t kGpus = 512;
  static constexpr std::size_t kGpuTextBytes = 128;  // its UUID, its index, its name
  static constexpr std::size_t kUserBytes = 256;
};

// The start of a text, at most so many bytes, without half a letter.
std::string_view truncate_utf8(std::string_view text, std::size_t max_bytes);

// One line, without its end.
std::string serialize_entry(const HistoryEntry& entry);
// Nothing if it is damaged.
std::optional<HistoryEntry> parse_entry(std::string_view line);

Result<void> append_history(const UserFolder& folder, const HistoryEntry& entry);

// The names of a user's files that tell of what ended at that time or later, the oldest first. None
// of a month that is yet to come.
std::vector<std::string> list_month_files(const UserFolder& folder, TimePoint since);

// How long one of them is; 0 if it cannot be read.
off_t file_size(const UserFolder& folder, const std::string& name);

// A file to read, from an offset on.
struct HistoryFile {
  const UserFolder* folder = nullptr;
  std::string name;
  off_t offset = 0;
};

// The files to read for what ended at that time or later, of one user or of all, at most 512 MiB of
// them together. Where there is more, the users with the most lose their oldest lines.
struct HistoryFiles {
  std::vector<HistoryFile> files;
  bool truncated = false;
};
HistoryFiles select_history_files(const std::vector<UserFolder>& folders, TimePoint since,
                                  std::optional<uid_t> user = std::nullopt);

// What stands in one of them from `offset` on, which becomes where to go on: a line without its end
// may still be being written. Gives the number of lines that are damaged. Only root may tell of
// others than himself.
using EntryCallback = std::function<void(HistoryEntry&& entry)>;
std::size_t read_entries(const UserFolder& folder, const std::string& file, off_t& offset,
                         const EntryCallback& on_entry);

// Everybody's, put together: each lease once, in the order of their grants. One that has begun and
// not ended is still running, for all that is written. Of more than fits into 256 MiB of memory,
// the oldest leases of the users with the most are left out.
struct History {
  std::vector<HistoryEntry> entries;
  std::size_t damaged = 0;
  bool truncated = false;  // more was written than was read
};
using EntryFilter = std::function<bool(const HistoryEntry& entry)>;
History read_all_history(const std::string& archive, TimePoint since, const EntryFilter& filter);
// The same, of all hosts.
Result<History> read_all_history(const RedisUrl& url, TimePoint since, const EntryFilter& filter);

void sort_by_grant(std::vector<HistoryEntry>& entries);

// The name of the file that takes what ends at that time: "history-2026-11.jsonl".
std::string month_file_name(TimePoint time);

}  // namespace berth
