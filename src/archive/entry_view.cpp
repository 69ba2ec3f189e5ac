// Parses the keys and values of a history line; see entry_view.h.
#include "archive/entry_view.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "archive/line_reader.h"

namespace berth {
namespace {

using std::chrono::milliseconds;

// The year 2096, which fits into 64 bits of nanoseconds.
constexpr std::int64_t kMaxTimeMs = 4'000'000'000'000;

// The fields that a line must have.
enum RequiredField : unsigned {
  kId = 1U << 0,
  kUid = 1U << 1,
  kCommand = 1U << 2,
  kLabel = 1U << 3,
  kParentLease = 1U << 4,
  kGpus = 1U << 5,
  kAsked = 1U << 6,
  kGranted = 1U << 7,
  kEnded = 1U << 8,
  kEnding = 1U << 9,
  kAllFields = (1U << 10) - 1,
};

// A value of another type counts as a missing key. If a key occurs twice, the last value counts.
bool read_optional_text(JsonCursor& in, std::string_view& target) {
  target = {};
  return in.peek() == '"' ? in.read_string(target) : in.skip_value();
}

template <class Number>
bool read_optional_number(JsonCursor& in, std::optional<Number>& target) {
  target.reset();
  const char first = in.peek();
  if (first < '0' || first > '9') return in.skip_value();
  std::optional<std::uint64_t> value;
  if (!in.read_number(value)) return false;
  if (value && *value <= static_cast<std::uint64_t>(std::numeric_limits<Number>::max())) {
    target = static_cast<Number>(*value);
  }
  return true;
}

}  // namespace

bool EntryReader::read_required_text(JsonCursor& in, std::string_view& target, unsigned field) {
  fields_read_ = in.peek() == '"' ? fields_read_ | field : fields_read_ & ~field;
  return read_optional_text(in, target);
}

bool EntryReader::read_required_time(JsonCursor& in, std::int64_t& target, unsigned field) {
  std::optional<std::int64_t> ms;
  if (!read_optional_number(in, ms)) return false;
  fields_read_ = ms ? fields_read_ | field : fields_read_ & ~field;
  target = std::min(ms.value_or(0), kMaxTimeMs);
  return true;
}

bool EntryReader::read_uid(JsonCursor& in) {
  std::optional<uid_t> uid;
  if (!read_optional_number(in, uid)) return false;
  fields_read_ = uid ? fields_read_ | kUid : fields_read_ & ~kUid;
  view_.uid = uid.value_or(0);
  return true;
}

bool EntryReader::read_ending(JsonCursor& in) {
  std::string_view word;
  if (!read_optional_text(in, word)) return false;
  const auto ending = parse_ending(word);
  fields_read_ = ending ? fields_read_ | kEnding : fields_read_ & ~kEnding;
  view_.ending = ending.value_or(Ending::running);
  return true;
}

bool EntryReader::read_idle(JsonCursor& in) {
  if (!read_optional_number(in, view_.idle_ms)) return false;
  if (view_.idle_ms) view_.idle_ms = std::min(*view_.idle_ms, kMaxTimeMs);
  return true;
}

bool EntryReader::read_gpu(JsonCursor& in) {
  if (in.peek() != '{') {
    gpus_valid_ = false;
    return in.skip_value();
  }
  GpuView gpu;
  bool has_uuid = false;
  const bool valid = in.read_object([&](std::string_view key) {
    if (key == "uuid") {
      has_uuid = in.peek() == '"';
      return read_optional_text(in, gpu.uuid);
    }
    if (key == "index") return read_optional_text(in, gpu.index);
    if (key == "name") return read_optional_text(in, gpu.name);
    if (key == "peak") return read_optional_number(in, gpu.peak);
    if (key == "utilization_pct") return read_optional_number(in, gpu.utilization_pct);
    if (key == "power_mw") return read_optional_number(in, gpu.power_mw);
    return in.skip_value();
  });
  gpus_valid_ = gpus_valid_ && has_uuid;
  if (view_.gpus.size() < EntryLimits::kGpus) view_.gpus.push_back(gpu);
  return valid;
}

bool EntryReader::read_gpu_list(JsonCursor& in) {
  view_.gpus.clear();
  gpus_valid_ = true;
  fields_read_ &= ~kGpus;
  if (in.peek() != '[') return in.skip_value();
  if (!in.read_array([&] { return read_gpu(in); })) return false;
  if (gpus_valid_) fields_read_ |= kGpus;
  return true;
}

bool EntryReader::read_member(JsonCursor& in, std::string_view key) {
  if (key == "id") return read_required_text(in, view_.id, kId);
  if (key == "uid") return read_uid(in);
  if (key == "command") return read_required_text(in, view_.command, kCommand);
  if (key == "label") return read_required_text(in, view_.label, kLabel);
  if (key == "job") return read_optional_text(in, view_.job);
  if (key == "within") return read_required_text(in, view_.parent_lease, kParentLease);
  if (key == "gpus") return read_gpu_list(in);
  if (key == "memory") return read_optional_number(in, view_.memory);
  if (key == "asked_ms") return read_required_time(in, view_.asked_ms, kAsked);
  if (key == "granted_ms") return read_required_time(in, view_.granted_ms, kGranted);
  if (key == "ended_ms") return read_required_time(in, view_.ended_ms, kEnded);
  if (key == "ending") return read_ending(in);
  if (key == "idle_ms") return read_idle(in);
  if (key == "adopted") {
    view_.adopted = in.peek() == 't';
    return in.skip_value();
  }
  if (key == "host") return read_optional_text(in, view_.host);
  if (key == "user") return read_optional_text(in, view_.user);
  if (key == "job_id") return read_optional_text(in, view_.job_id);
  if (key == "job_host") return read_optional_text(in, view_.job_host);
  if (key == "code") {
    std::optional<int> code;
    if (!read_optional_number(in, code)) return false;
    view_.code = code.value_or(0);
    return true;
  }
  return in.skip_value();  // a key of a later version of Berth
}

void EntryReader::clear() {
  auto gpus = std::move(view_.gpus);  // keeps its memory for the next line
  gpus.clear();
  view_ = {};
  view_.gpus = std::move(gpus);
  fields_read_ = 0;
}

bool EntryReader::read_canonical_gpus(JsonCursor& in) {
  if (in.consume_literal("]")) return true;
  do {
    if (view_.gpus.size() == EntryLimits::kGpus) return false;
    GpuView& gpu = view_.gpus.emplace_back();
    if (!in.consume_literal("{\"uuid\":") || !in.read_string(gpu.uuid) ||
        !in.consume_literal(",\"index\":") || !in.read_string(gpu.index) ||
        !in.consume_literal(",\"name\":") || !in.read_string(gpu.name)) {
      return false;
    }
    if (in.consume_literal(",\"peak\":") && !read_optional_number(in, gpu.peak)) return false;
    if (in.consume_literal(",\"utilization_pct\":") &&
        !read_optional_number(in, gpu.utilization_pct))
      return false;
    if (in.consume_literal(",\"power_mw\":") && !read_optional_number(in, gpu.power_mw))
      return false;
    if (!in.consume_literal("}")) return false;
  } while (in.consume_literal(","));
  return in.consume_literal("]");
}

// The fast path. Almost all lines have their keys in the order of serialize_entry() and no blanks,
// so each key can be compared with the expected text. Returns false for any other line; then read()
// reads it by read_member().
bool EntryReader::read_canonical(JsonCursor& in) {
  std::optional<int> code;
  const bool complete =
      in.consume_literal("{\"id\":") && in.read_string(view_.id) &&
      in.consume_literal(",\"uid\":") && read_uid(in) && in.consume_literal(",\"command\":") &&
      in.read_string(view_.command) && in.consume_literal(",\"label\":") &&
      in.read_string(view_.label) && in.consume_literal(",\"job\":") && in.read_string(view_.job) &&
      in.consume_literal(",\"within\":") && in.read_string(view_.parent_lease) &&
      in.consume_literal(",\"gpus\":[") && read_canonical_gpus(in) &&
      in.consume_literal(",\"memory\":") &&
      (in.consume_literal("null") || read_optional_number(in, view_.memory)) &&
      in.consume_literal(",\"asked_ms\":") && read_required_time(in, view_.asked_ms, kAsked) &&
      in.consume_literal(",\"granted_ms\":") &&
      read_required_time(in, view_.granted_ms, kGranted) && in.consume_literal(",\"ended_ms\":") &&
      read_required_time(in, view_.ended_ms, kEnded) && in.consume_literal(",\"ending\":") &&
      read_ending(in) && in.consume_literal(",\"code\":") && read_optional_number(in, code);
  if (!complete) return false;
  if (in.consume_literal(",\"idle_ms\":") && !read_idle(in)) return false;
  if (in.consume_literal(",\"host\":") && !in.read_string(view_.host)) return false;
  if (in.consume_literal(",\"user\":") && !in.read_string(view_.user)) return false;
  if (in.consume_literal(",\"job_id\":") && !in.read_string(view_.job_id)) return false;
  if (in.consume_literal(",\"job_host\":") && !in.read_string(view_.job_host)) return false;
  view_.adopted = in.consume_literal(",\"adopted\":true");
  view_.code = code.value_or(0);
  fields_read_ |= kId | kCommand | kLabel | kParentLease | kGpus;
  return in.consume_literal("}") && in.at_end() && fields_read_ == kAllFields;
}

// Limits the length of all texts, and returns the view.
EntryView* EntryReader::truncate_texts() {
  const auto bound = [](std::string_view& text, std::size_t max_bytes) {
    text = truncate_utf8(text, max_bytes);
  };
  bound(view_.id, EntryLimits::kIdBytes);
  bound(view_.command, EntryLimits::kCommandBytes);
  bound(view_.label, EntryLimits::kLabelBytes);
  bound(view_.job, EntryLimits::kJobBytes);
  bound(view_.parent_lease, EntryLimits::kIdBytes);
  bound(view_.user, EntryLimits::kUserBytes);
  bound(view_.job_id, EntryLimits::kIdBytes);
  bound(view_.job_host, EntryLimits::kUserBytes);
  for (GpuView& gpu : view_.gpus) {
    bound(gpu.uuid, EntryLimits::kGpuTextBytes);
    bound(gpu.index, EntryLimits::kGpuTextBytes);
    bound(gpu.name, EntryLimits::kGpuTextBytes);
  }
  return &view_;
}

EntryView* EntryReader::read(std::string_view line) {
  clear();
  JsonCursor canonical(line, decoded_);
  canonical_ = read_canonical(canonical);
  if (canonical_) return truncate_texts();
  clear();
  JsonCursor in(line, decoded_);
  const bool valid =
      in.read_object([&](std::string_view key) { return read_member(in, key); }) && in.at_end();
  return valid && fields_read_ == kAllFields ? truncate_texts() : nullptr;
}

EntryView make_entry_view(const HistoryEntry& entry) {
  EntryView view;
  view.id = entry.id;
  view.uid = entry.uid;
  view.command = entry.command;
  view.label = entry.label;
  view.job = entry.job;
  view.parent_lease = entry.parent_lease;
  for (const HistoryGpu& gpu : entry.gpus) {
    view.gpus.push_back({gpu.uuid, gpu.index, gpu.name,
                         gpu.peak ? std::optional(gpu.peak->count) : std::nullopt,
                         gpu.utilization_pct, gpu.power_mw});
  }
  if (entry.memory) view.memory = entry.memory->count;
  view.asked_ms = to_ms(entry.asked);
  view.granted_ms = to_ms(entry.granted);
  view.ended_ms = to_ms(entry.ended);
  view.ending = entry.ending;
  view.code = entry.code;
  if (entry.idle) view.idle_ms = entry.idle->count();
  view.adopted = entry.adopted;
  view.host = entry.host;
  view.user = entry.user;
  view.job_id = entry.job_id;
  view.job_host = entry.job_host;
  return view;
}

HistoryEntry make_entry(const EntryView& view) {
  HistoryEntry entry;
  entry.id = view.id;
  entry.uid = view.uid;
  entry.command = view.command;
  entry.label = view.label;
  entry.job = view.job;
  entry.parent_lease = view.parent_lease;
  for (const GpuView& gpu : view.gpus) {
    entry.gpus.push_back({std::string(gpu.uuid), std::string(gpu.index), std::string(gpu.name),
                          gpu.peak ? std::optional(Bytes{*gpu.peak}) : std::nullopt,
                          gpu.utilization_pct, gpu.power_mw});
  }
  if (view.memory) entry.memory = Bytes{*view.memory};
  entry.asked = TimePoint(milliseconds(view.asked_ms));
  entry.granted = TimePoint(milliseconds(view.granted_ms));
  entry.ended = TimePoint(milliseconds(view.ended_ms));
  entry.ending = view.ending;
  entry.code = view.code;
  if (view.idle_ms) entry.idle = milliseconds(*view.idle_ms);
  entry.adopted = view.adopted;
  entry.host = view.host;
  entry.user = view.user;
  entry.job_id = view.job_id;
  entry.job_host = view.job_host;
  return entry;
}

std::size_t read_entry_views(const UserFolder& folder, const std::string& file, off_t& offset,
                             const EntryViewCallback& on_view) {
  LineReader lines(folder.directory.get(), file, offset);
  EntryReader reader;
  std::size_t damaged = 0;
  while (const auto line = lines.next()) {
    if (line->empty()) continue;
    EntryView* const view = reader.read(*line);
    if (view != nullptr && (folder.uid == 0 || view->uid == folder.uid)) {
      view->host = view->user = {};  // a file has lines of this host only, whatever its owner wrote
      on_view(*view);
    } else {
      ++damaged;
    }
  }
  offset = lines.offset();
  return damaged;
}

}  // namespace berth
