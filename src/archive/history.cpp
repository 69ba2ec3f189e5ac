// The lines; see history.h.
#include "archive/history.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>
#include <unordered_map>
#include <utility>

#include "archive/entry_view.h"
#include "cluster/store/history_stream.h"
#include "harbour/file_error.h"

namespace berth {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kPrefix = "history-";
constexpr std::string_view kSuffix = ".jsonl";

constexpr std::array<std::pair<Ending, const char*>, 5> kEndings{{{Ending::running, "running"},
                                                                  {Ending::exited, "exited"},
                                                                  {Ending::killed, "killed"},
                                                                  {Ending::released, "released"},
                                                                  {Ending::lost, "lost"}}};

// Just as month_file() names them: else their owner could have others read any number of files.
bool is_month_file(std::string_view name) {
  constexpr std::string_view kForm = "history-dddd-dd.jsonl";
  return std::equal(name.begin(), name.end(), kForm.begin(), kForm.end(), [](char c, char form) {
    return form == 'd' ? c >= '0' && c <= '9' : c == form;
  });
}

constexpr std::uint64_t kMostFileBytes = std::uint64_t{512} << 20;
constexpr std::uint64_t kMostMemory = std::uint64_t{256} << 20;

// The largest share such that nobody has more and all together have at most `most`.
std::uint64_t fair_share(std::vector<std::uint64_t> sizes, std::uint64_t most) {
  std::sort(sizes.begin(), sizes.end());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::uint64_t share = most / (sizes.size() - i);
    if (sizes[i] > share) return share;
    most -= sizes[i];
  }
  return UINT64_MAX;
}

std::uint64_t size_of(const HistoryFile& file) {
  return static_cast<std::uint64_t>(file_size(*file.folder, file.name));
}

// About how much memory an entry takes up, with its place in the index.
std::uint64_t memory_of(const HistoryEntry& entry) {
  constexpr std::uint64_t kIndex = 160;
  std::uint64_t size = kIndex + sizeof entry + entry.gpus.capacity() * sizeof(HistoryGpu);
  const auto add = [&](const std::string& text) {
    constexpr std::size_t kInside =
        sizeof(std::string) / 2;  // shorter texts need no memory of their own
    if (text.capacity() >= kInside) size += text.capacity() + 16;
  };
  for (const std::string* text :
       {&entry.id, &entry.command, &entry.label, &entry.job, &entry.within, &entry.user}) {
    add(*text);
  }
  for (const HistoryGpu& gpu : entry.gpus) {
    add(gpu.uuid);
    add(gpu.name);
  }
  return size;
}

// Puts the lines of each lease together, in a bounded amount of memory.
class HistoryMerger {
 public:
  HistoryMerger(TimePoint since, const WantEntry& want) : since_(since), want_(want) {}

  void add(HistoryEntry&& entry) {
    if (entry.ended < since_ || !want_(entry)) return;
    Owner& owner = owners_[{entry.host, entry.uid, entry.user}];
    const auto [place, is_new] = owner.places.try_emplace(entry.id, owner.first + owner.size());
    if (is_new) {
      const std::uint64_t memory = memory_of(entry);
      owner.memory += memory;
      memory_ += memory;
      owner.entries.push_back(std::move(entry));
      if (memory_ > kMostMemory) make_room();
      return;
    }
    HistoryEntry& known = owner.entries[place->second - owner.first];
    if (lost_after_end(entry.ending, known.ending) || lost_after_end(known.ending, entry.ending)) {
      entry.ended = known.ended = std::max(entry.ended, known.ended);
    }
    if (!is_more_final(entry.ending, known.ending)) return;
    const std::uint64_t before = memory_of(known);
    known = std::move(entry);
    const std::uint64_t memory = memory_of(known);
    owner.memory += memory - before;
    memory_ += memory - before;
    if (memory_ > kMostMemory) make_room();
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
  struct Owner {
    std::deque<HistoryEntry> entries;
    std::size_t first = 0;  // how many were left out before the first of them
    std::unordered_map<std::string, std::size_t> places;  // by id: `first` and the index
    std::uint64_t memory = 0;

    std::size_t size() const { return entries.size(); }
  };

  // Leaves out the oldest leases of the owners with the most, until half of the room is free.
  void make_room() {
    std::vector<std::uint64_t> sizes;
    for (const auto& [key, owner] : owners_) sizes.push_back(owner.memory);
    const std::uint64_t share = fair_share(std::move(sizes), kMostMemory / 2);
    for (auto& [key, owner] : owners_) {
      while (owner.memory > share && !owner.entries.empty()) {
        const std::uint64_t memory = memory_of(owner.entries.front());
        owner.memory -= std::min(memory, owner.memory);
        memory_ -= std::min(memory, memory_);
        owner.places.erase(owner.entries.front().id);
        owner.entries.pop_front();
        ++owner.first;
        history_.truncated = true;
      }
    }
  }

  TimePoint since_;
  const WantEntry& want_;
  History history_;
  std::map<std::tuple<std::string, uid_t, std::string>, Owner> owners_;
  std::uint64_t memory_ = 0;
};

}  // namespace

const char* ending_word(Ending ending) {
  const auto* const known = std::find_if(kEndings.begin(), kEndings.end(),
                                         [&](const auto& pair) { return pair.first == ending; });
  return known->second;
}

std::optional<Ending> ending_of(std::string_view word) {
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

std::string_view cut(std::string_view text, std::size_t most) {
  if (text.size() <= most) return text;
  constexpr unsigned kFollows = 0x80;  // 10xxxxxx: not the first byte of a letter
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0U) == kFollows) --most;
  return text.substr(0, most);
}

std::string write_entry(const HistoryEntry& entry) {
  Json gpus = Json::array();
  for (const HistoryGpu& gpu : entry.gpus) {
    if (gpus.size() == EntryLimits::gpus) break;
    Json one{{"uuid", cut(gpu.uuid, EntryLimits::gpu_text)},
             {"index", cut(gpu.index, EntryLimits::gpu_text)},
             {"name", cut(gpu.name, EntryLimits::gpu_text)}};
    if (gpu.peak) one["peak"] = gpu.peak->count;
    if (gpu.utilization_pct) one["utilization_pct"] = *gpu.utilization_pct;
    gpus.push_back(std::move(one));
  }
  Json line{{"id", cut(entry.id, EntryLimits::id)},
            {"uid", entry.uid},
            {"command", cut(entry.command, EntryLimits::command)},
            {"label", cut(entry.label, EntryLimits::label)},
            {"job", cut(entry.job, EntryLimits::job)},
            {"within", cut(entry.within, EntryLimits::id)},
            {"gpus", std::move(gpus)},
            {"memory", entry.memory ? Json(entry.memory->count) : Json(nullptr)},
            {"asked_ms", to_ms(entry.asked)},
            {"granted_ms", to_ms(entry.granted)},
            {"ended_ms", to_ms(entry.ended)},
            {"ending", ending_word(entry.ending)},
            {"code", entry.code}};
  if (entry.idle) line["idle_ms"] = entry.idle->count();
  if (!entry.host.empty()) line["host"] = entry.host;
  if (!entry.user.empty()) line["user"] = cut(entry.user, EntryLimits::user);
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<HistoryEntry> read_entry(std::string_view line) {
  EntryReader reader;
  const EntryView* const view = reader.read(line);
  return view == nullptr ? std::nullopt : std::optional(entry_of(*view));
}

std::string month_file(TimePoint time) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time.time_since_epoch()).count();
  return fmt::format("{}{:%Y-%m}{}", kPrefix, fmt::gmtime(static_cast<std::time_t>(seconds)),
                     kSuffix);
}

Result<void> append_history(const UserFolder& folder, const HistoryEntry& entry) {
  const std::string name = month_file(entry.ended);
  const UniqueFd file(::openat(folder.directory.get(), name.c_str(),
                               O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!file) return file_error("write the history in", folder.path);
  std::string text = write_entry(entry);
  text += '\n';
  // A line that was cut short must not take this one with it.
  const off_t end = ::lseek(file.get(), 0, SEEK_END);
  if (end == 0) ::fchmod(file.get(), 0644);  // whatever the umask is: others read it
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

std::vector<std::string> month_files(const UserFolder& folder, TimePoint since) {
  std::vector<std::string> names;
  const int copy = ::openat(folder.directory.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0) return names;
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::fdopendir(copy), ::closedir);
  const std::string first = month_file(since);
  // A day for clocks that differ.
  const std::string last = month_file(std::chrono::system_clock::now() + std::chrono::hours(24));
  while (const dirent* entry = listing ? ::readdir(listing.get()) : nullptr) {
    const std::string_view name = entry->d_name;
    if (is_month_file(name) && name >= first && name <= last) names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

off_t file_size(const UserFolder& folder, const std::string& name) {
  const UniqueFd file = open_inside(folder.directory.get(), name.c_str(), O_RDONLY);
  struct stat about {};
  if (!file || ::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode)) return 0;
  return about.st_size;
}

HistoryFiles history_files(const std::vector<UserFolder>& folders, TimePoint since,
                           std::optional<uid_t> user) {
  HistoryFiles found;
  // A sparse file can have any size. Each counts with what is read of it at most, so that the sums
  // do not overflow.
  std::map<uid_t, std::uint64_t> totals;
  std::vector<std::uint64_t> sizes;  // as in `files`
  for (const UserFolder& folder : folders) {
    if (user && folder.uid != *user && folder.uid != 0) continue;  // root may tell of others
    for (std::string& name : month_files(folder, since)) {
      found.files.push_back({&folder, std::move(name)});
      HistoryFile& file = found.files.back();
      const std::uint64_t size = size_of(file);
      sizes.push_back(std::min(size, kMostFileBytes));
      file.from = static_cast<off_t>(size - sizes.back());
      found.truncated = found.truncated || file.from > 0;
      totals[folder.uid] += sizes.back();
    }
  }
  std::vector<std::uint64_t> by_user;
  by_user.reserve(totals.size());
  for (const auto& [uid, total] : totals) by_user.push_back(total);
  const std::uint64_t share = fair_share(std::move(by_user), kMostFileBytes);
  // The oldest files come first, and lose what is too much.
  for (std::size_t i = 0; i < found.files.size(); ++i) {
    std::uint64_t& total = totals[found.files[i].folder->uid];
    if (total <= share) continue;
    const std::uint64_t unread = std::min(total - share, sizes[i]);
    found.files[i].from += static_cast<off_t>(unread);
    total -= unread;
    found.truncated = true;
  }
  return found;
}

std::size_t read_lines(const UserFolder& folder, const std::string& file, off_t& done,
                       const TakeEntry& take) {
  return read_views(folder, file, done, [&](const EntryView& view) { take(entry_of(view)); });
}

void sort_by_grant(std::vector<HistoryEntry>& entries) {
  const auto before = [](const HistoryEntry& a, const HistoryEntry& b) {
    return a.granted < b.granted;
  };
  if (std::is_sorted(entries.begin(), entries.end(), before)) return;
  std::stable_sort(entries.begin(), entries.end(), before);
}

History read_all_history(const std::string& archive, TimePoint since, const WantEntry& want) {
  HistoryMerger merger(since, want);
  std::size_t damaged = 0;
  const std::vector<UserFolder> folders = user_folders(archive);
  HistoryFiles found = history_files(folders, since);
  for (HistoryFile& file : found.files) {
    damaged += read_lines(*file.folder, file.name, file.from,
                          [&](HistoryEntry&& entry) { merger.add(std::move(entry)); });
  }
  History history = merger.finish(damaged);
  history.truncated = history.truncated || found.truncated;
  return history;
}

Result<History> read_all_history(const RedisUrl& url, TimePoint since, const WantEntry& want) {
  HistoryMerger merger(since, want);
  RedisSession server(url);
  HistoryStream stream(url, since);
  for (;;) {
    const auto more =
        stream.next(server, [&](const EntryView& view) { merger.add(entry_of(view)); });
    if (!more) return tl::make_unexpected(more.error());
    if (!*more) return merger.finish(stream.damaged());
  }
}

}  // namespace berth
