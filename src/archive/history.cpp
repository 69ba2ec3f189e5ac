// The lines; see history.h.
#include "archive/history.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <rapidjson/document.h>
#include <sys/stat.h>
#include <unistd.h>
#include <unordered_map>
#include <utility>

#include "harbour/file_error.h"

namespace berth {
namespace {

using Value = rapidjson::Value;
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

const Value* find(const Value& object, const char* key) {
  const auto member = object.FindMember(key);
  return member == object.MemberEnd() ? nullptr : &member->value;
}

bool take_text(const Value& object, const char* key, std::string& target) {
  const Value* value = find(object, key);
  if (value == nullptr || !value->IsString()) return false;
  target.assign(value->GetString(), value->GetStringLength());
  return true;
}

bool take_time(const Value& object, const char* key, TimePoint& target) {
  constexpr std::int64_t kLatestMs = 4'000'000'000'000;  // the year 2096
  const Value* value = find(object, key);
  if (value == nullptr || !value->IsInt64() || value->GetInt64() < 0) return false;
  target = TimePoint(milliseconds(std::min(value->GetInt64(), kLatestMs)));
  return true;
}

bool take_gpus(const Value& object, std::vector<HistoryGpu>& target) {
  const Value* list = find(object, "gpus");
  if (list == nullptr || !list->IsArray()) return false;
  target.reserve(list->Size());
  for (const Value& one : list->GetArray()) {
    HistoryGpu gpu;
    if (!one.IsObject() || !take_text(one, "uuid", gpu.uuid)) return false;
    take_text(one, "index", gpu.index);
    take_text(one, "name", gpu.name);
    target.push_back(std::move(gpu));
  }
  return true;
}

bool take_ending(const Value& object, HistoryEntry& entry) {
  const Value* word = find(object, "ending");
  if (word == nullptr || !word->IsString()) return false;
  const auto* const known = std::find_if(kEndings.begin(), kEndings.end(), [&](const auto& pair) {
    return std::string_view(word->GetString()) == pair.second;
  });
  if (known == kEndings.end()) return false;
  entry.ending = known->first;
  const Value* code = find(object, "code");
  if (code != nullptr && code->IsInt()) entry.code = code->GetInt();
  return true;
}

// A regular file from `offset` to its end; nothing if there is none.
std::string read_file(int directory, const std::string& name, off_t offset) {
  const UniqueFd file(
      ::openat(directory, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat about {};
  if (!file || ::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode)) return {};
  std::string text(static_cast<std::size_t>(std::max<off_t>(0, about.st_size - offset)), '\0');
  std::size_t have = 0;
  while (have < text.size()) {
    const auto got = ::pread(file.get(), text.data() + have, text.size() - have,
                             offset + static_cast<off_t>(have));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    have += static_cast<std::size_t>(got);
  }
  text.resize(have);
  return text;
}

// Of two that tell of the same lease: the one who saw its end, and else the later one.
bool knows_more(const HistoryEntry& one, const HistoryEntry& other) {
  const auto rank = [](const HistoryEntry& entry) {
    if (entry.ending == Ending::running) return 0;
    return entry.ending == Ending::lost ? 1 : 2;
  };
  return rank(one) > rank(other);
}

}  // namespace

std::string write_entry(const HistoryEntry& entry) {
  nlohmann::ordered_json gpus = nlohmann::ordered_json::array();
  for (const HistoryGpu& gpu : entry.gpus) {
    gpus.push_back({{"uuid", gpu.uuid}, {"index", gpu.index}, {"name", gpu.name}});
  }
  const auto* const ending = std::find_if(kEndings.begin(), kEndings.end(), [&](const auto& pair) {
    return pair.first == entry.ending;
  });
  const nlohmann::ordered_json line{
      {"id", entry.id},
      {"uid", entry.uid},
      {"command", entry.command},
      {"label", entry.label},
      {"within", entry.within},
      {"gpus", std::move(gpus)},
      {"memory", entry.memory ? nlohmann::ordered_json(entry.memory->count) : nullptr},
      {"asked_ms", to_ms(entry.asked)},
      {"granted_ms", to_ms(entry.granted)},
      {"ended_ms", to_ms(entry.ended)},
      {"ending", ending->second},
      {"code", entry.code}};
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::optional<HistoryEntry> read_entry(std::string_view line) {
  // Large enough for a line, so that reading a million of them allocates nothing.
  std::array<char, 8 << 10> room;  // NOLINT(cppcoreguidelines-pro-type-member-init): the parser's
  rapidjson::MemoryPoolAllocator<> pool(room.data(), room.size());
  rapidjson::Document document(&pool);
  document.Parse<rapidjson::kParseIterativeFlag>(line.data(), line.size());
  if (document.HasParseError() || !document.IsObject()) return std::nullopt;
  HistoryEntry entry;
  const Value* uid = find(document, "uid");
  if (uid == nullptr || !uid->IsUint()) return std::nullopt;
  entry.uid = uid->GetUint();
  const bool good =
      take_text(document, "id", entry.id) && take_text(document, "command", entry.command) &&
      take_text(document, "label", entry.label) && take_gpus(document, entry.gpus) &&
      take_text(document, "within", entry.within) && take_time(document, "asked_ms", entry.asked) &&
      take_time(document, "granted_ms", entry.granted) &&
      take_time(document, "ended_ms", entry.ended) && take_ending(document, entry);
  if (!good) return std::nullopt;
  const Value* memory = find(document, "memory");
  if (memory != nullptr && memory->IsUint64()) entry.memory = Bytes{memory->GetUint64()};
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
  const std::string text = read_file(folder.directory.get(), file, done);
  std::size_t damaged = 0;
  std::size_t begin = 0;
  for (std::size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    if (line.empty()) continue;
    auto entry = line.size() <= kLongestLine ? read_entry(line) : std::nullopt;
    if (entry && (folder.uid == 0 || entry->uid == folder.uid)) {
      take(std::move(*entry));
    } else {
      ++damaged;
    }
  }
  done += static_cast<off_t>(begin);
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
