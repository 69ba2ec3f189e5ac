// The lines; see history.h.
#include "archive/history.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>
#include <unordered_map>
#include <utility>

#include "harbour/file_error.h"

namespace berth {
namespace {

using Json = nlohmann::ordered_json;
using std::chrono::milliseconds;

constexpr std::string_view kPrefix = "history-";
constexpr std::string_view kSuffix = ".jsonl";
constexpr std::size_t kLongestLine = 256 << 10;

constexpr std::array<std::pair<Ending, const char*>, 5> kEndings{{{Ending::running, "running"},
                                                                  {Ending::exited, "exited"},
                                                                  {Ending::killed, "killed"},
                                                                  {Ending::released, "released"},
                                                                  {Ending::lost, "lost"}}};

std::int64_t to_ms(TimePoint time) {
  return std::chrono::floor<milliseconds>(time.time_since_epoch()).count();
}

const Json* find(const Json& object, const char* key) {
  const auto member = object.find(key);
  return member == object.end() ? nullptr : &*member;
}

bool take_text(const Json& object, const char* key, std::string& target) {
  const Json* value = find(object, key);
  if (value == nullptr || !value->is_string()) return false;
  target = value->get_ref<const std::string&>();
  return true;
}

template <class Number>
bool take_number(const Json& object, const char* key, Number& target) {
  const Json* value = find(object, key);
  if (value == nullptr || !value->is_number_unsigned()) return false;
  const auto number = value->get<std::uint64_t>();
  if (number > static_cast<std::uint64_t>(std::numeric_limits<Number>::max())) return false;
  target = static_cast<Number>(number);
  return true;
}

bool take_time(const Json& object, const char* key, TimePoint& target) {
  constexpr std::int64_t kLatestMs = 4'000'000'000'000;  // the year 2096
  std::int64_t ms = 0;
  if (!take_number(object, key, ms)) return false;
  target = TimePoint(milliseconds(std::min(ms, kLatestMs)));
  return true;
}

bool take_gpus(const Json& object, std::vector<HistoryGpu>& target) {
  const Json* list = find(object, "gpus");
  if (list == nullptr || !list->is_array()) return false;
  target.reserve(list->size());
  for (const Json& one : *list) {
    HistoryGpu gpu;
    if (!one.is_object() || !take_text(one, "uuid", gpu.uuid)) return false;
    take_text(one, "index", gpu.index);
    take_text(one, "name", gpu.name);
    Bytes peak;
    if (take_number(one, "peak", peak.count)) gpu.peak = peak;
    unsigned utilization = 0;
    if (take_number(one, "utilization_pct", utilization)) gpu.utilization_pct = utilization;
    target.push_back(std::move(gpu));
  }
  return true;
}

bool take_ending(const Json& object, HistoryEntry& entry) {
  std::string word;
  if (!take_text(object, "ending", word)) return false;
  const auto* const known = std::find_if(kEndings.begin(), kEndings.end(),
                                         [&](const auto& pair) { return word == pair.second; });
  if (known == kEndings.end()) return false;
  entry.ending = known->first;
  take_number(object, "code", entry.code);
  return true;
}

// The lines of a regular file from `offset` on, piece by piece: its owner may have made it as long
// as he likes. What is longer than a line can be is given as one that says nothing.
class Lines {
 public:
  Lines(int directory, const std::string& name, off_t offset)
      : file_(::openat(directory, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)),
        offset_(offset) {
    struct stat about {};
    if (!file_ || ::fstat(file_.get(), &about) != 0 || !S_ISREG(about.st_mode)) file_.reset();
    // Of more than anybody can have lived through, the end.
    if (file_ && about.st_size - offset_ > kMostBytes) offset_ = about.st_size - kMostBytes;
    read_ = offset_;
  }

  // Nothing at the end.
  std::optional<std::string_view> next() {
    bool too_long = false;
    for (;;) {
      const auto end = std::string_view(piece_).find('\n', begin_);
      if (end != std::string_view::npos) {
        const std::string_view line = std::string_view(piece_).substr(begin_, end - begin_);
        offset_ += static_cast<off_t>(line.size() + 1);
        begin_ = end + 1;
        return too_long ? std::string_view("too long") : line;
      }
      if (piece_.size() - begin_ > kLongestLine) {
        too_long = true;
        offset_ += static_cast<off_t>(piece_.size() - begin_);
        begin_ = piece_.size();
      }
      if (!more()) return std::nullopt;
    }
  }

  // Where the lines that were given end.
  off_t offset() const { return offset_; }

 private:
  static constexpr std::size_t kPiece = 1 << 20;
  static constexpr off_t kMostBytes = off_t{1} << 29;

  bool more() {
    piece_.erase(0, begin_);
    begin_ = 0;
    const std::size_t have = piece_.size();
    piece_.resize(have + kPiece);
    ssize_t got = -1;
    do {
      got = file_ ? ::pread(file_.get(), piece_.data() + have, kPiece, read_) : 0;
    } while (got < 0 && errno == EINTR);
    piece_.resize(have + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    read_ += std::max<ssize_t>(got, 0);
    return got > 0;
  }

  UniqueFd file_;
  off_t offset_;
  off_t read_ = 0;  // how much of the file is in the piece, or was
  std::string piece_;
  std::size_t begin_ = 0;  // of the next line, in the piece
};

// Of two that tell of the same lease: the one who saw its end, and else the later one.
bool knows_more(const HistoryEntry& one, const HistoryEntry& other) {
  const auto rank = [](const HistoryEntry& entry) {
    if (entry.ending == Ending::running) return 0;
    return entry.ending == Ending::lost ? 1 : 2;
  };
  return rank(one) > rank(other);
}

}  // namespace

const char* ending_word(Ending ending) {
  const auto* const known = std::find_if(kEndings.begin(), kEndings.end(),
                                         [&](const auto& pair) { return pair.first == ending; });
  return known->second;
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
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<HistoryEntry> read_entry(std::string_view line) {
  const Json document = Json::parse(line, nullptr, false);
  if (!document.is_object()) return std::nullopt;
  HistoryEntry entry;
  const bool good =
      take_text(document, "id", entry.id) && take_number(document, "uid", entry.uid) &&
      take_text(document, "command", entry.command) && take_text(document, "label", entry.label) &&
      take_text(document, "within", entry.within) && take_gpus(document, entry.gpus) &&
      take_time(document, "asked_ms", entry.asked) &&
      take_time(document, "granted_ms", entry.granted) &&
      take_time(document, "ended_ms", entry.ended) && take_ending(document, entry);
  if (!good) return std::nullopt;
  Bytes memory;
  if (take_number(document, "memory", memory.count)) entry.memory = memory;
  take_text(document, "job", entry.job);
  std::int64_t idle_ms = 0;
  if (take_number(document, "idle_ms", idle_ms)) entry.idle = milliseconds(idle_ms);
  return entry;
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
  while (const dirent* entry = listing ? ::readdir(listing.get()) : nullptr) {
    const std::string_view name = entry->d_name;
    if (name.starts_with(kPrefix) && name.ends_with(kSuffix) && name >= first) {
      names.emplace_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::size_t read_lines(const UserFolder& folder, const std::string& file, off_t& done,
                       const TakeEntry& take) {
  Lines lines(folder.directory.get(), file, done);
  std::size_t damaged = 0;
  while (const auto line = lines.next()) {
    if (line->empty()) continue;
    auto entry = read_entry(*line);
    if (entry && (folder.uid == 0 || entry->uid == folder.uid)) {
      take(std::move(*entry));
    } else {
      ++damaged;
    }
  }
  done = lines.offset();
  return damaged;
}

void sort_by_grant(std::vector<HistoryEntry>& entries) {
  const auto before = [](const HistoryEntry& a, const HistoryEntry& b) {
    return a.granted < b.granted;
  };
  if (std::is_sorted(entries.begin(), entries.end(), before)) return;
  std::stable_sort(entries.begin(), entries.end(), before);
}

History read_all_history(const std::string& archive, TimePoint since, const WantEntry& want) {
  History history;
  std::unordered_map<std::string, std::size_t> places;
  for (const UserFolder& folder : user_folders(archive)) {
    const auto take = [&](HistoryEntry&& entry) {
      if (entry.ended < since || !want(entry)) return;
      const auto [place, is_new] = places.try_emplace(entry.id, history.entries.size());
      if (is_new) {
        history.entries.push_back(std::move(entry));
      } else if (knows_more(entry, history.entries[place->second])) {
        history.entries[place->second] = std::move(entry);
      }
    };
    for (const std::string& file : month_files(folder, since)) {
      off_t done = 0;
      history.damaged += read_lines(folder, file, done, take);
    }
  }
  sort_by_grant(history.entries);
  return history;
}

}  // namespace berth
