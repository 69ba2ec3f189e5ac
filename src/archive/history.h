// The history: a line of JSON for each lease, in files by month in the folder of each user.
//
// A lease gets a line when it ends, and one before that when it has lasted a second
// (Ending::running). Only the owner of a folder appends lines to its files. A line is written by
// one call of write(): it is complete or, on a full disk, damaged, and a damaged line does not
// affect others. docs/history.md describes the lines, and why they are not a database.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
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
  running,   // the end has not been recorded
  exited,    // the job exited with `code`
  killed,    // the job was killed by the signal `code`
  released,  // the holder released the lease
  lost,      // the holder was gone; the lease ended some time before `ended`
};

// "exited", as in the lines and in JSON output.
const char* ending_name(Ending ending);
std::optional<Ending> parse_ending(std::string_view word);
// For two lines about the same lease: does `one` say more about the end than `other`?
bool is_more_final(Ending one, Ending other);
// For two lines about the same lease: did the holder record the end `seen`, but processes that it
// left behind keep the lease until a client recorded it as `lost`? Then the lease ended at the
// later of the two times.
bool lost_after_end(Ending lost, Ending seen);

struct HistoryGpu {
  std::string uuid;
  std::string index;  // at the time of the lease; empty if unknown
  std::string name;
  // Measured during the lease; absent if not measured.
  std::optional<Bytes> peak{};  // the largest amount of memory that the job used on it
  // Averages of the whole card.
  std::optional<unsigned> utilization_pct{};
  std::optional<unsigned> power_mw{};  // milliwatts
};

struct HistoryEntry {
  std::string id;
  uid_t uid = 0;
  std::string command;
  std::string label;
  std::string job;           // the job type; empty if there is none
  std::string parent_lease;  // the id of the lease that this one is a part of; empty for most
  std::vector<HistoryGpu> gpus;
  std::optional<Bytes> memory;  // reserved on each GPU; absent: the whole GPU
  TimePoint asked;
  TimePoint granted;
  TimePoint ended;  // when the end was noticed; for Ending::running, when the line was written
  Ending ending = Ending::running;
  int code = 0;                                   // the exit code or signal
  std::optional<std::chrono::milliseconds> idle;  // how long none of its GPUs was utilized
  bool adopted = false;  // the lease was made for a process that ran already ('berth adopt')
  // In a history of several hosts: the host, and the name of `uid` there. Else empty.
  std::string host{};
  std::string user{};
  // Of a job of `berth run --host`: its id for the user, and the host on which it was submitted.
  std::string job_id{};
  std::string job_host{};
};

// Identifies a lease. An id alone does not: leases of other users and hosts may have the same id.
struct LeaseKey {
  std::string host;
  uid_t uid = 0;
  std::string id;

  auto operator<=>(const LeaseKey&) const = default;
};
inline LeaseKey lease_key(const HistoryEntry& entry) {
  return {entry.host, entry.uid, entry.id};
}

// The limits of a line. Longer texts are cut when a line is written and when it is read, since the
// writer may be a hostile user or an old version of Berth.
struct EntryLimits {
  static constexpr std::size_t kIdBytes = 64;
  static constexpr std::size_t kCommandBytes = 4096;
  static constexpr std::size_t kLabelBytes = 1024;
  static constexpr std::size_t kJobBytes = 1024;
  static constexpr std::size_t kGpus = 512;
  static constexpr std::size_t kGpuTextBytes = 128;  // for each of UUID, index and name
  static constexpr std::size_t kUserBytes = 256;
};

// At most the first `max_bytes` bytes of `text`, without a part of a character at the end.
std::string_view truncate_utf8(std::string_view text, std::size_t max_bytes);

// One line, without a line break.
std::string serialize_entry(const HistoryEntry& entry);
// nullopt if the line is damaged.
std::optional<HistoryEntry> parse_entry(std::string_view line);

// Appends a line to the file of the month in which the lease ended.
Result<void> append_history(const UserFolder& folder, const HistoryEntry& entry);

// The names of a user's history files for leases that ended at `since` or later, the oldest first.
// Excludes files of future months.
std::vector<std::string> list_month_files(const UserFolder& folder, TimePoint since);

// The size of a history file; 0 if it cannot be read.
off_t file_size(const UserFolder& folder, const std::string& name);

// The grant of the first lease that each user's oldest file records.
using HistoryStarts = std::map<uid_t, TimePoint>;
HistoryStarts find_history_starts(const std::vector<UserFolder>& folders);

// When the recording began, for `viewer`; nullopt if there are no leases. A user can write false
// lines in their own folder, so one user alone, other than the viewer and root, cannot make the
// start earlier: two must record a lease so early. Where neither the viewer nor root has lines and
// only one user has, that user's lines count.
std::optional<TimePoint> choose_history_start(const HistoryStarts& starts, uid_t viewer);

// A history file and the offset from which to read it. Does not own the folder.
struct HistoryFile {
  const UserFolder* folder = nullptr;
  std::string name;
  off_t offset = 0;
};

// The files with the leases that ended at `since` or later, of one user or of all. In total at most
// 512 MiB are read: beyond that, the users with the most lose their oldest lines, so that one user
// cannot displace the history of another.
struct HistoryFiles {
  std::vector<HistoryFile> files;
  bool truncated = false;  // some lines are left out
};
HistoryFiles select_history_files(const std::vector<UserFolder>& folders, TimePoint since,
                                  std::optional<uid_t> user = std::nullopt);

// The history of all users: each lease once, sorted by the time of the grant. A lease without a
// recorded end is Ending::running. At most 256 MiB of memory are used: beyond that, the oldest
// leases of the users with the most are left out.
struct History {
  std::vector<HistoryEntry> entries;
  std::size_t damaged = 0;  // the number of damaged lines
  bool truncated = false;   // some leases are left out
};
using EntryFilter = std::function<bool(const HistoryEntry& entry)>;
History read_all_history(const std::string& archive, TimePoint since, const EntryFilter& filter);
// The same for all hosts, from the server.
Result<History> read_all_history(const RedisUrl& url, TimePoint since, const EntryFilter& filter);

void sort_by_grant(std::vector<HistoryEntry>& entries);

// The name of the file for leases that end at `time`: "history-2026-11.jsonl".
std::string month_file_name(TimePoint time);

}  // namespace berth
