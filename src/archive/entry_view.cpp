// The keys of a line, and what their values must be; see entry_view.h.
#include "archive/entry_view.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "archive/lines.h"

namespace berth {
namespace {

using std::chrono::milliseconds;

constexpr std::int64_t kLatestMs = 4'000'000'000'000;  // the year 2096: nanoseconds still count it

// What a line must have.
enum Part : unsigned {
  kId = 1U << 0,
  kUid = 1U << 1,
  kCommand = 1U << 2,
  kLabel = 1U << 3,
  kWithin = 1U << 4,
  kGpus = 1U << 5,
  kAsked = 1U << 6,
  kGranted = 1U << 7,
  kEnded = 1U << 8,
  kEnding = 1U << 9,
  kAll = (1U << 10) - 1,
};

// Where a value is of another kind it is as if the key were not there; where a key is there twice,
// the last one counts.
bool text_if_any(JsonCursor& in, std::string_view& target) {
  target = {};
  return in.peek() == '"' ? in.text(target) : in.skip();
}

template <class Number>
bool number_if_any(JsonCursor& in, std::optional<Number>& target) {
  target.reset();
  const char first = in.peek();
  if (first < '0' || first > '9') return in.skip();
  std::optional<std::uint64_t> value;
  if (!in.number(value)) return false;
  if (value && *value <= static_cast<std::uint64_t>(std::numeric_limits<Number>::max())) {
    target = static_cast<Number>(*value);
  }
  return true;
}

}  // namespace

bool EntryReader::must_be_text(JsonCursor& in, std::string_view& target, unsigned part) {
  read_ = in.peek() == '"' ? read_ | part : read_ & ~part;
  return text_if_any(in, target);
}

bool EntryReader::must_be_time(JsonCursor& in, std::int64_t& target, unsigned part) {
  std::optional<std::int64_t> ms;
  if (!number_if_any(in, ms)) return false;
  read_ = ms ? read_ | part : read_ & ~part;
  target = std::min(ms.value_or(0), kLatestMs);
  return true;
}

bool EntryReader::must_be_user(JsonCursor& in) {
  std::optional<uid_t> uid;
  if (!number_if_any(in, uid)) return false;
  read_ = uid ? read_ | kUid : read_ & ~kUid;
  view_.uid = uid.value_or(0);
  return true;
}

bool EntryReader::must_be_ending(JsonCursor& in) {
  std::string_view word;
  if (!text_if_any(in, word)) return false;
  const auto ending = ending_of(word);
  read_ = ending ? read_ | kEnding : read_ & ~kEnding;
  view_.ending = ending.value_or(Ending::running);
  return true;
}

bool EntryReader::idle_if_any(JsonCursor& in) {
  if (!number_if_any(in, view_.idle_ms)) return false;
  if (view_.idle_ms) view_.idle_ms = std::min(*view_.idle_ms, kLatestMs);
  return true;
}

bool EntryReader::gpu(JsonCursor& in) {
  if (in.peek() != '{') {
    gpus_good_ = false;
    return in.skip();
  }
  GpuView gpu;
  bool has_uuid = false;
  const bool sound = in.object([&](std::string_view key) {
    if (key == "uuid") {
      has_uuid = in.peek() == '"';
      return text_if_any(in, gpu.uuid);
    }
    if (key == "index") return text_if_any(in, gpu.index);
    if (key == "name") return text_if_any(in, gpu.name);
    if (key == "peak") return number_if_any(in, gpu.peak);
    if (key == "utilization_pct") return number_if_any(in, gpu.utilization_pct);
    return in.skip();
  });
  gpus_good_ = gpus_good_ && has_uuid;
  if (view_.gpus.size() < EntryLimits::gpus) view_.gpus.push_back(gpu);
  return sound;
}

bool EntryReader::gpu_list(JsonCursor& in) {
  view_.gpus.clear();
  gpus_good_ = true;
  read_ &= ~kGpus;
  if (in.peek() != '[') return in.skip();
  if (!in.array([&] { return gpu(in); })) return false;
  if (gpus_good_) read_ |= kGpus;
  return true;
}

bool EntryReader::member(JsonCursor& in, std::string_view key) {
  if (key == "id") return must_be_text(in, view_.id, kId);
  if (key == "uid") return must_be_user(in);
  if (key == "command") return must_be_text(in, view_.command, kCommand);
  if (key == "label") return must_be_text(in, view_.label, kLabel);
  if (key == "job") return text_if_any(in, view_.job);
  if (key == "within") return must_be_text(in, view_.within, kWithin);
  if (key == "gpus") return gpu_list(in);
  if (key == "memory") return number_if_any(in, view_.memory);
  if (key == "asked_ms") return must_be_time(in, view_.asked_ms, kAsked);
  if (key == "granted_ms") return must_be_time(in, view_.granted_ms, kGranted);
  if (key == "ended_ms") return must_be_time(in, view_.ended_ms, kEnded);
  if (key == "ending") return must_be_ending(in);
  if (key == "idle_ms") return idle_if_any(in);
  if (key == "host") return text_if_any(in, view_.host);
  if (key == "user") return text_if_any(in, view_.user);
  if (key == "code") {
    std::optional<int> code;
    if (!number_if_any(in, code)) return false;
    view_.code = code.value_or(0);
    return true;
  }
  return in.skip();  // of a later version of berth
}

void EntryReader::clear() {
  auto gpus = std::move(view_.gpus);  // its place is used again
  gpus.clear();
  view_ = {};
  view_.gpus = std::move(gpus);
  read_ = 0;
}

bool EntryReader::gpus_as_written(JsonCursor& in) {
  if (in.literal("]")) return true;
  do {
    if (view_.gpus.size() == EntryLimits::gpus) return false;
    GpuView& gpu = view_.gpus.emplace_back();
    if (!in.literal("{\"uuid\":") || !in.text(gpu.uuid) || !in.literal(",\"index\":") ||
        !in.text(gpu.index) || !in.literal(",\"name\":") || !in.text(gpu.name)) {
      return false;
    }
    if (in.literal(",\"peak\":") && !number_if_any(in, gpu.peak)) return false;
    if (in.literal(",\"utilization_pct\":") && !number_if_any(in, gpu.utilization_pct))
      return false;
    if (!in.literal("}")) return false;
  } while (in.literal(","));
  return in.literal("]");
}

// Almost all lines have their keys in the order of write_entry(), without a blank: then no key
// needs to be read before it is compared. A line that is otherwise, or damaged, is left to
// member().
bool EntryReader::read_as_written(JsonCursor& in) {
  std::optional<int> code;
  const bool so_far =
      in.literal("{\"id\":") && in.text(view_.id) && in.literal(",\"uid\":") && must_be_user(in) &&
      in.literal(",\"command\":") && in.text(view_.command) && in.literal(",\"label\":") &&
      in.text(view_.label) && in.literal(",\"job\":") && in.text(view_.job) &&
      in.literal(",\"within\":") && in.text(view_.within) && in.literal(",\"gpus\":[") &&
      gpus_as_written(in) && in.literal(",\"memory\":") &&
      (in.literal("null") || number_if_any(in, view_.memory)) && in.literal(",\"asked_ms\":") &&
      must_be_time(in, view_.asked_ms, kAsked) && in.literal(",\"granted_ms\":") &&
      must_be_time(in, view_.granted_ms, kGranted) && in.literal(",\"ended_ms\":") &&
      must_be_time(in, view_.ended_ms, kEnded) && in.literal(",\"ending\":") &&
      must_be_ending(in) && in.literal(",\"code\":") && number_if_any(in, code);
  if (!so_far) return false;
  if (in.literal(",\"idle_ms\":") && !idle_if_any(in)) return false;
  if (in.literal(",\"host\":") && !in.text(view_.host)) return false;
  if (in.literal(",\"user\":") && !in.text(view_.user)) return false;
  view_.code = code.value_or(0);
  read_ |= kId | kCommand | kLabel | kWithin | kGpus;
  return in.literal("}") && in.ends() && read_ == kAll;
}

// The view, with texts of a bounded length.
EntryView* EntryReader::bounded() {
  const auto bound = [](std::string_view& text, std::size_t most) { text = cut(text, most); };
  bound(view_.id, EntryLimits::id);
  bound(view_.command, EntryLimits::command);
  bound(view_.label, EntryLimits::label);
  bound(view_.job, EntryLimits::job);
  bound(view_.within, EntryLimits::id);
  bound(view_.user, EntryLimits::user);
  for (GpuView& gpu : view_.gpus) {
    bound(gpu.uuid, EntryLimits::gpu_text);
    bound(gpu.index, EntryLimits::gpu_text);
    bound(gpu.name, EntryLimits::gpu_text);
  }
  return &view_;
}

EntryView* EntryReader::read(std::string_view line) {
  clear();
  JsonCursor quick(line, decoded_);
  as_written_ = read_as_written(quick);
  if (as_written_) return bounded();
  clear();
  JsonCursor in(line, decoded_);
  const bool sound = in.object([&](std::string_view key) { return member(in, key); }) && in.ends();
  return sound && read_ == kAll ? bounded() : nullptr;
}

EntryView view_of(const HistoryEntry& entry) {
  EntryView view;
  view.id = entry.id;
  view.uid = entry.uid;
  view.command = entry.command;
  view.label = entry.label;
  view.job = entry.job;
  view.within = entry.within;
  for (const HistoryGpu& gpu : entry.gpus) {
    view.gpus.push_back({gpu.uuid, gpu.index, gpu.name,
                         gpu.peak ? std::optional(gpu.peak->count) : std::nullopt,
                         gpu.utilization_pct});
  }
  if (entry.memory) view.memory = entry.memory->count;
  view.asked_ms = to_ms(entry.asked);
  view.granted_ms = to_ms(entry.granted);
  view.ended_ms = to_ms(entry.ended);
  view.ending = entry.ending;
  view.code = entry.code;
  if (entry.idle) view.idle_ms = entry.idle->count();
  view.host = entry.host;
  view.user = entry.user;
  return view;
}

HistoryEntry entry_of(const EntryView& view) {
  HistoryEntry entry;
  entry.id = view.id;
  entry.uid = view.uid;
  entry.command = view.command;
  entry.label = view.label;
  entry.job = view.job;
  entry.within = view.within;
  for (const GpuView& gpu : view.gpus) {
    entry.gpus.push_back({std::string(gpu.uuid), std::string(gpu.index), std::string(gpu.name),
                          gpu.peak ? std::optional(Bytes{*gpu.peak}) : std::nullopt,
                          gpu.utilization_pct});
  }
  if (view.memory) entry.memory = Bytes{*view.memory};
  entry.asked = TimePoint(milliseconds(view.asked_ms));
  entry.granted = TimePoint(milliseconds(view.granted_ms));
  entry.ended = TimePoint(milliseconds(view.ended_ms));
  entry.ending = view.ending;
  entry.code = view.code;
  if (view.idle_ms) entry.idle = milliseconds(*view.idle_ms);
  entry.host = view.host;
  entry.user = view.user;
  return entry;
}

std::size_t read_views(const UserFolder& folder, const std::string& file, off_t& done,
                       const TakeView& take) {
  Lines lines(folder.directory.get(), file, done);
  EntryReader reader;
  std::size_t damaged = 0;
  while (const auto line = lines.next()) {
    if (line->empty()) continue;
    EntryView* const view = reader.read(*line);
    if (view != nullptr && (folder.uid == 0 || view->uid == folder.uid)) {
      view->host = view->user = {};  // of this host, whatever somebody has written
      take(*view);
    } else {
      ++damaged;
    }
  }
  done = lines.offset();
  return damaged;
}

}  // namespace berth
