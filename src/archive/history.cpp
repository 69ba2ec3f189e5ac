// Writes, reads and merges the lines of the history; see history.h.
#include "archive/history.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <iterator>
#include <map>
#include <memory>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>
#include <unordered_map>
#include <utility>

#include "archive/entry_view.h"
#include "archive/line_reader.h"
#include "base/json.h"
#include "base/time_text.h"
#include "cluster/store/history_stream.h"
#include "harbour/file_error.h"

namespace berth {
namespace {

constexpr std::string_view kPrefix = "history-";
constexpr std::string_view kSuffix = ".jsonl";

constexpr std::array<std::pair<Ending, const char*>, 5> kEndings{{{Ending::running, "running"},
                                                                  {Ending::exited, "exited"},
                                                                  {Ending::killed, "killed"},
                                                                  {Ending::released, "released"},
                                                                  {Ending::lost, "lost"}}};

// Only names that month_file_name() can return count. Otherwise a user could make other users read
// any number of files.
bool is_month_file(std::string_view name) {
  constexpr std::string_view kPattern = "history-dddd-dd.jsonl";
  return std::equal(
      name.begin(), name.end(), kPattern.begin(), kPattern.end(),
      [](char c, char pattern) { return pattern == 'd' ? c >= '0' && c <= '9' : c == pattern; });
}

constexpr std::uint64_t kMaxFileBytes = std::uint64_t{512} << 20;
constexpr std::uint64_t kMaxMemory = std::uint64_t{256} << 20;

// The largest limit for each user such that all users together have at most `max_bytes`.
std::uint64_t fair_share(std::vector<std::uint64_t> sizes, std::uint64_t max_bytes) {
  std::sort(sizes.begin(), sizes.end());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::uint64_t share = max_bytes / (sizes.size() - i);
    if (sizes[i] > share) return share;
    max_bytes -= sizes[i];
  }
  return UINT64_MAX;
}

// The approximate memory of an entry, with its place in the index.
std::uint64_t estimate_entry_memory(const HistoryEntry& entry) {
  constexpr std::uint64_t kIndexBytes = 160;
  std::uint64_t size = kIndexBytes + sizeof entry + entry.gpus.capacity() * sizeof(HistoryGpu);
  const auto add = [&](const std::string& text) {
    // Shorter texts are inside the std::string itself.
    constexpr std::size_t kInlineBytes = sizeof(std::string) / 2;
    if (text.capacity() >= kInlineBytes) size += text.capacity() + 16;
  };
  for (const std::string* text :
       {&entry.id, &entry.command, &entry.label, &entry.job, &entry.parent_lease, &entry.user,
        &entry.job_id, &entry.job_host}) {
    add(*text);
  }
  for (const HistoryGpu& gpu : entry.gpus) {
    add(gpu.uuid);
    add(gpu.name);
  }
  return size;
}

// Merges the lines of each lease into one entry, in a limited amount of memory.
class HistoryMerger {
 public:
  HistoryMerger(TimePoint since, const EntryFilter& filter) : since_(since), filter_(filter) {}

  void add(HistoryEntry&& entry) {
    if (entry.ended < since_ || !filter_(entry)) return;
    OwnerEntries& owner = owners_[{entry.host, entry.uid, entry.user}];
    const auto [position, is_new] =
        owner.positions.try_emplace(entry.id, owner.dropped_count + owner.entries.size());
    if (is_new) {
      const std::uint64_t memory = estimate_entry_memory(entry);
      owner.memory += memory;
      memory_ += memory;
      owner.entries.push_back(std::move(entry));
      if (memory_ > kMaxMemory) drop_oldest();
      return;
    }
    HistoryEntry& known = owner.entries[position->second - owner.dropped_count];
    if (lost_after_end(entry.ending, known.ending) || lost_after_end(known.ending, entry.ending)) {
      entry.ended = known.ended = std::max(entry.ended, known.ended);
    }
    if (!is_more_final(entry.ending, known.ending)) return;
    const std::uint64_t before = estimate_entry_memory(known);
    known = std::move(entry);
    const std::uint64_t memory = estimate_entry_memory(known);
    owner.memory += memory - before;
    memory_ += memory - before;
    if (memory_ > kMaxMemory) drop_oldest();
  }

  History finish(std::size_t damaged) {
    for (auto& [key, owner] : owners_) {
      std::move(owner.entries.begin(), owner.entries.end(), std::back_inserter(history_.entries));
      owner = {};
    }
    sort_by_grant(history_.entries);
    history_.damaged = damaged;
    return std::move(history_);
  }

 private:
  // The leases of one user on one host, in the order in which they were read.
  struct OwnerEntries {
    std::deque<HistoryEntry> entries;
    std::size_t dropped_count = 0;  // how many were removed from the front of `entries`
    std::unordered_map<std::string, std::size_t> positions;  // by id: index + `dropped_count`
    std::uint64_t memory = 0;
  };

  // Removes the oldest leases of the owners with the most, until half of the memory is free.
  void drop_oldest() {
    std::vector<std::uint64_t> sizes;
    for (const auto& [key, owner] : owners_) sizes.push_back(owner.memory);
    const std::uint64_t share = fair_share(std::move(sizes), kMaxMemory / 2);
    for (auto& [key, owner] : owners_) {
      while (owner.memory > share && !owner.entries.empty()) {
        const std::uint64_t memory = estimate_entry_memory(owner.entries.front());
        owner.memory -= std::min(memory, owner.memory);
        memory_ -= std::min(memory, memory_);
        owner.positions.erase(owner.entries.front().id);
        owner.entries.pop_front();
        ++owner.dropped_count;
        history_.truncated = true;
      }
    }
  }

  TimePoint since_;
  const EntryFilter& filter_;
  History history_;
  std::map<std::tuple<std::string, uid_t, std::string>, OwnerEntries> owners_;
  std::uint64_t memory_ = 0;
};

// The first line of a file that is not damaged.
std::optional<HistoryEntry> read_first_entry(const UserFolder& folder, const std::string& name) {
  constexpr int kMaxDamagedLines = 100;
  LineReader lines(folder.directory.get(), name, 0);
  for (int i = 0; i <= kMaxDamagedLines; ++i) {
    const auto line = lines.next();
    if (!line) break;
    if (auto entry = parse_entry(*line)) return entry;
  }
  return std::nullopt;
}

}  // namespace

const char* ending_name(Ending ending) {
  const auto* const known = std::find_if(kEndings.begin(), kEndings.end(),
                                         [&](const auto& pair) { return pair.first == ending; });
  return known->second;
}

std::optional<Ending> parse_ending(std::string_view word) {
  const auto* const known = std::find_if(kEndings.begin(), kEndings.end(),
                                         [&](const auto& pair) { return word == pair.second; });
  return known == kEndings.end() ? std::nullopt : std::optional(known->first);
}

bool is_more_final(Ending one, Ending other) {
  const auto rank = [](Ending ending) {
    if (ending == Ending::running) return 0;
    return ending == Ending::lost ? 1 : 2;
  };
  return rank(one) > rank(other);
}

bool lost_after_end(Ending lost, Ending seen) {
  return lost == Ending::lost && is_more_final(seen, lost);
}

std::string_view truncate_utf8(std::string_view text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  constexpr unsigned kContinuationByte = 0x80;  // 10xxxxxx: not the first byte of a character
  while (max_bytes > 0 &&
         (static_cast<unsigned char>(text[max_bytes]) & 0xC0U) == kContinuationByte)
    --max_bytes;
  return text.substr(0, max_bytes);
}

std::string serialize_entry(const HistoryEntry& entry) {
  Json gpus = Json::array();
  for (const HistoryGpu& gpu : entry.gpus) {
    if (gpus.size() == EntryLimits::kGpus) break;
    Json one{{"uuid", truncate_utf8(gpu.uuid, EntryLimits::kGpuTextBytes)},
             {"index", truncate_utf8(gpu.index, EntryLimits::kGpuTextBytes)},
             {"name", truncate_utf8(gpu.name, EntryLimits::kGpuTextBytes)}};
    if (gpu.peak) one["peak"] = gpu.peak->count;
    if (gpu.utilization_pct) one["utilization_pct"] = *gpu.utilization_pct;
    if (gpu.power_mw) one["power_mw"] = *gpu.power_mw;
    gpus.push_back(std::move(one));
  }
  Json line{{"id", truncate_utf8(entry.id, EntryLimits::kIdBytes)},
            {"uid", entry.uid},
            {"command", truncate_utf8(entry.command, EntryLimits::kCommandBytes)},
            {"label", truncate_utf8(entry.label, EntryLimits::kLabelBytes)},
            {"job", truncate_utf8(entry.job, EntryLimits::kJobBytes)},
            {"within", truncate_utf8(entry.parent_lease, EntryLimits::kIdBytes)},
            {"gpus", std::move(gpus)},
            {"memory", entry.memory ? Json(entry.memory->count) : Json(nullptr)},
            {"asked_ms", to_ms(entry.asked)},
            {"granted_ms", to_ms(entry.granted)},
            {"ended_ms", to_ms(entry.ended)},
            {"ending", ending_name(entry.ending)},
            {"code", entry.code}};
  if (entry.idle) line["idle_ms"] = entry.idle->count();
  if (!entry.host.empty()) line["host"] = entry.host;
  if (!entry.user.empty()) line["user"] = truncate_utf8(entry.user, EntryLimits::kUserBytes);
  if (!entry.job_id.empty()) line["job_id"] = truncate_utf8(entry.job_id, EntryLimits::kIdBytes);
  if (!entry.job_host.empty())
    line["job_host"] = truncate_utf8(entry.job_host, EntryLimits::kUserBytes);
  if (entry.adopted) line["adopted"] = true;
  return to_utf8_json(line);
}

std::optional<HistoryEntry> parse_entry(std::string_view line) {
  EntryReader reader;
  const EntryView* const view = reader.read(line);
  return view == nullptr ? std::nullopt : std::optional(make_entry(*view));
}

std::string month_file_name(TimePoint time) {
  return fmt::format("{}{}{}", kPrefix, format_utc_time(time, "%Y-%m"), kSuffix);
}

Result<void> append_history(const UserFolder& folder, const HistoryEntry& entry) {
  const std::string name = month_file_name(entry.ended);
  const UniqueFd file(::openat(folder.directory.get(), name.c_str(),
                               O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!file) return file_error("write the history in", folder.path);
  std::string text = serialize_entry(entry);
  text += '\n';
  const off_t end = ::lseek(file.get(), 0, SEEK_END);
  if (end == 0) ::fchmod(file.get(), 0644);  // other users must read it, whatever the umask is
  // If a full disk cut the last line short, the new line must not continue it.
  char last = '\n';
  if (end > 0 && ::pread(file.get(), &last, 1, end - 1) == 1 && last != '\n')
    text.insert(0, 1, '\n');
  const auto written = ::write(file.get(), text.data(), text.size());
  if (written != static_cast<ssize_t>(text.size())) {
    if (written >= 0) errno = ENOSPC;
    return file_error("write the history in", folder.path);
  }
  return {};
}

std::vector<std::string> list_month_files(const UserFolder& folder, TimePoint since) {
  std::vector<std::string> names;
  const int copy = ::openat(folder.directory.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0) return names;
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::fdopendir(copy), ::closedir);
  const std::string first = month_file_name(since);
  // A day allows for clocks that differ.
  const std::string last =
      month_file_name(std::chrono::system_clock::now() + std::chrono::hours(24));
  while (const dirent* entry = listing ? ::readdir(listing.get()) : nullptr) {
    const std::string_view name = entry->d_name;
    if (is_month_file(name) && name >= first && name <= last) names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

off_t file_size(const UserFolder& folder, const std::string& name) {
  const UniqueFd file = open_inside(folder.directory.get(), name.c_str(), O_RDONLY);
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return 0;
  return status.st_size;
}

HistoryStarts find_history_starts(const std::vector<UserFolder>& folders) {
  HistoryStarts starts;
  for (const UserFolder& folder : folders) {
    const std::vector<std::string> names = list_month_files(folder, TimePoint{});
    if (names.empty()) continue;
    if (const auto entry = read_first_entry(folder, names.front()))
      starts.emplace(folder.uid, entry->granted);
  }
  return starts;
}

std::optional<TimePoint> choose_history_start(const HistoryStarts& starts, uid_t viewer) {
  if (starts.empty()) return std::nullopt;
  std::vector<TimePoint> times;
  times.reserve(starts.size());
  for (const auto& [uid, time] : starts) times.push_back(time);
  std::sort(times.begin(), times.end());
  std::optional<TimePoint> start;
  if (times.size() > 1) start = times[1];
  for (const uid_t trusted : {viewer, uid_t{0}}) {
    const auto found = starts.find(trusted);
    if (found != starts.end()) start = std::min(start.value_or(found->second), found->second);
  }
  return start.value_or(times.front());
}

HistoryFiles select_history_files(const std::vector<UserFolder>& folders, TimePoint since,
                                  std::optional<uid_t> user) {
  HistoryFiles selection;
  // A sparse file can have any size. The size of each file is limited to what is read of it at
  // most, so that the sums do not overflow.
  std::map<uid_t, std::uint64_t> totals;
  std::vector<std::uint64_t> sizes;  // parallel to `files`
  for (const UserFolder& folder : folders) {
    // Root's folder has leases of all users.
    if (user && folder.uid != *user && folder.uid != 0) continue;
    for (std::string& name : list_month_files(folder, since)) {
      selection.files.push_back({&folder, std::move(name)});
      HistoryFile& file = selection.files.back();
      const auto size = static_cast<std::uint64_t>(file_size(folder, file.name));
      sizes.push_back(std::min(size, kMaxFileBytes));
      file.offset = static_cast<off_t>(size - sizes.back());
      selection.truncated = selection.truncated || file.offset > 0;
      totals[folder.uid] += sizes.back();
    }
  }
  std::vector<std::uint64_t> by_user;
  by_user.reserve(totals.size());
  for (const auto& [uid, total] : totals) by_user.push_back(total);
  const std::uint64_t share = fair_share(std::move(by_user), kMaxFileBytes);
  // The oldest files come first, so the oldest lines are skipped.
  for (std::size_t i = 0; i < selection.files.size(); ++i) {
    std::uint64_t& total = totals[selection.files[i].folder->uid];
    if (total <= share) continue;
    const std::uint64_t skipped = std::min(total - share, sizes[i]);
    selection.files[i].offset += static_cast<off_t>(skipped);
    total -= skipped;
    selection.truncated = true;
  }
  return selection;
}

void sort_by_grant(std::vector<HistoryEntry>& entries) {
  const auto before = [](const HistoryEntry& a, const HistoryEntry& b) {
    return a.granted < b.granted;
  };
  if (std::is_sorted(entries.begin(), entries.end(), before)) return;
  std::stable_sort(entries.begin(), entries.end(), before);
}

History read_all_history(const std::string& archive, TimePoint since, const EntryFilter& filter) {
  HistoryMerger merger(since, filter);
  std::size_t damaged = 0;
  const std::vector<UserFolder> folders = open_user_folders(archive);
  HistoryFiles selection = select_history_files(folders, since);
  for (HistoryFile& file : selection.files) {
    damaged += read_entry_views(*file.folder, file.name, file.offset,
                                [&](const EntryView& view) { merger.add(make_entry(view)); });
  }
  History history = merger.finish(damaged);
  history.truncated = history.truncated || selection.truncated;
  return history;
}

Result<History> read_all_history(const RedisUrl& url, TimePoint since, const EntryFilter& filter) {
  HistoryMerger merger(since, filter);
  RedisSession server(url);
  HistoryStream stream(url, since);
  for (;;) {
    const bool has_more =
        TRY(stream.read_next(server, [&](const EntryView& view) { merger.add(make_entry(view)); }));
    if (!has_more) return merger.finish(stream.damaged());
  }
}

}  // namespace berth
