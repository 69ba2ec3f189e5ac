// The lines; see history.h.
#include "archive/history.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "archive/entry_view.h"
#include "archive/stream.h"
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

// Puts the lines of each lease together.
class Gathering {
 public:
  Gathering(TimePoint since, const WantEntry& want) : since_(since), want_(want) {}

  void take(HistoryEntry&& entry) {
    if (entry.ended < since_ || !want_(entry)) return;
    const auto [place, is_new] = places_.try_emplace(key_of(entry), history_.entries.size());
    if (is_new) {
      history_.entries.push_back(std::move(entry));
      return;
    }
    HistoryEntry& known = history_.entries[place->second];
    if (outlived(entry.ending, known.ending) || outlived(known.ending, entry.ending)) {
      entry.ended = known.ended = std::max(entry.ended, known.ended);
    }
    if (knows_more(entry.ending, known.ending)) known = std::move(entry);
  }

  History finish(std::size_t damaged) {
    sort_by_grant(history_.entries);
    history_.damaged = damaged;
    return std::move(history_);
  }

 private:
  TimePoint since_;
  const WantEntry& want_;
  History history_;
  std::map<LeaseKey, std::size_t> places_;
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

bool knows_more(Ending one, Ending other) {
  const auto rank = [](Ending ending) {
    if (ending == Ending::running) return 0;
    return ending == Ending::lost ? 1 : 2;
  };
  return rank(one) > rank(other);
}

bool outlived(Ending lost, Ending seen) {
  return lost == Ending::lost && knows_more(seen, lost);
}

std::string write_entry(const HistoryEntry& entry) {
  Json gpus = Json::array();
  for (const HistoryGpu& gpu : entry.gpus) {
    Json one{{"uuid", gpu.uuid}, {"index", gpu.index}, {"name", gpu.name}};
    if (gpu.peak) one["peak"] = gpu.peak->count;
    if (gpu.utilization_pct) one["utilization_pct"] = *gpu.utilization_pct;
    gpus.push_back(std::move(one));
  }
  Json line{{"id", entry.id},
            {"uid", entry.uid},
            {"command", entry.command},
            {"label", entry.label},
            {"job", entry.job},
            {"within", entry.within},
            {"gpus", std::move(gpus)},
            {"memory", entry.memory ? Json(entry.memory->count) : Json(nullptr)},
            {"asked_ms", to_ms(entry.asked)},
            {"granted_ms", to_ms(entry.granted)},
            {"ended_ms", to_ms(entry.ended)},
            {"ending", ending_word(entry.ending)},
            {"code", entry.code}};
  if (entry.idle) line["idle_ms"] = entry.idle->count();
  if (!entry.host.empty()) line["host"] = entry.host;
  if (!entry.user.empty()) line["user"] = entry.user;
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
  Gathering gathering(since, want);
  std::size_t damaged = 0;
  for (const UserFolder& folder : user_folders(archive)) {
    for (const std::string& file : month_files(folder, since)) {
      off_t done = 0;
      damaged += read_lines(folder, file, done,
                            [&](HistoryEntry&& entry) { gathering.take(std::move(entry)); });
    }
  }
  return gathering.finish(damaged);
}

Result<History> read_all_history(const RedisUrl& url, TimePoint since, const WantEntry& want) {
  Gathering gathering(since, want);
  RedisSession server(url);
  HistoryStream stream(url, since);
  for (;;) {
    const auto more =
        stream.next(server, [&](const EntryView& view) { gathering.take(entry_of(view)); });
    if (!more) return tl::make_unexpected(more.error());
    if (!*more) return gathering.finish(stream.damaged());
  }
}

}  // namespace berth
