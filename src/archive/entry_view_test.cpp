// Unit tests of entry_view.h: it reads each line, damaged or not, as a tree-building parser does.
#include "archive/entry_view.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <rapidcheck/gtest.h>

namespace berth {
namespace {

using Reference = nlohmann::ordered_json;

// The reference: simple and slow. nullopt if the line is damaged; else the whole line as a tree.
class ReferenceReader {
 public:
  static std::optional<Reference> read(const std::string& line) {
    const Reference in = Reference::parse(line, nullptr, false);
    if (!in.is_object()) return std::nullopt;
    Reference out;
    for (const char* key : {"id", "command", "label", "within"}) {
      if (!text(in, key)) return std::nullopt;
    }
    out["id"] = bounded(in["id"], EntryLimits::kIdBytes);
    out["command"] = bounded(in["command"], EntryLimits::kCommandBytes);
    out["label"] = bounded(in["label"], EntryLimits::kLabelBytes);
    out["within"] = bounded(in["within"], EntryLimits::kIdBytes);
    for (const char* key : {"asked_ms", "granted_ms", "ended_ms"}) {
      const auto ms = number(in, key, std::numeric_limits<std::int64_t>::max());
      if (!ms) return std::nullopt;
      out[key] = std::min<std::uint64_t>(*ms, kLatest);
    }
    const auto uid = number(in, "uid", std::numeric_limits<uid_t>::max());
    if (!uid || !in.contains("gpus") || !in["gpus"].is_array() || !text(in, "ending")) return {};
    if (!parse_ending(in["ending"].get<std::string>())) return std::nullopt;
    out["uid"] = *uid;
    out["ending"] = in["ending"];
    out["gpus"] = Reference::array();
    for (const Reference& gpu : in["gpus"]) {
      if (!gpu.is_object() || !text(gpu, "uuid")) return std::nullopt;
      out["gpus"].push_back(
          {bounded(gpu["uuid"], EntryLimits::kGpuTextBytes),
           text(gpu, "index") ? bounded(gpu["index"], EntryLimits::kGpuTextBytes) : Reference(""),
           text(gpu, "name") ? bounded(gpu["name"], EntryLimits::kGpuTextBytes) : Reference(""),
           or_null(number(gpu, "peak", UINT64_MAX)),
           or_null(number(gpu, "utilization_pct", std::numeric_limits<unsigned>::max())),
           or_null(number(gpu, "power_mw", std::numeric_limits<unsigned>::max()))});
    }
    out["job"] = text(in, "job") ? bounded(in["job"], EntryLimits::kJobBytes) : Reference("");
    out["memory"] = or_null(number(in, "memory", UINT64_MAX));
    out["code"] = number(in, "code", std::numeric_limits<int>::max()).value_or(0);
    auto idle = number(in, "idle_ms", std::numeric_limits<std::int64_t>::max());
    if (idle) idle = std::min(*idle, kLatest);
    out["idle_ms"] = or_null(idle);
    out["adopted"] = in.contains("adopted") && in["adopted"] == true;
    return out;
  }

 private:
  static constexpr std::uint64_t kLatest = 4'000'000'000'000;

  static Reference bounded(const Reference& text, std::size_t most) {
    return Reference(truncate_utf8(text.get_ref<const std::string&>(), most));
  }
  static bool text(const Reference& in, const char* key) {
    return in.contains(key) && in[key].is_string();
  }
  static std::optional<std::uint64_t> number(const Reference& in, const char* key,
                                             std::uint64_t most) {
    if (!in.contains(key) || !in[key].is_number_unsigned()) return std::nullopt;
    const auto value = in[key].get<std::uint64_t>();
    return value <= most ? std::optional(value) : std::nullopt;
  }
  static Reference or_null(const std::optional<std::uint64_t>& value) {
    return value ? Reference(*value) : Reference(nullptr);
  }
};

std::optional<Reference> read_as_json(EntryReader& reader, const std::string& line) {
  const EntryView* const view = reader.read(line);
  if (view == nullptr) return std::nullopt;
  Reference out{{"id", view->id},
                {"command", view->command},
                {"label", view->label},
                {"within", view->parent_lease},
                {"asked_ms", static_cast<std::uint64_t>(view->asked_ms)},
                {"granted_ms", static_cast<std::uint64_t>(view->granted_ms)},
                {"ended_ms", static_cast<std::uint64_t>(view->ended_ms)},
                {"uid", view->uid},
                {"ending", ending_name(view->ending)},
                {"gpus", Reference::array()}};
  for (const GpuView& gpu : view->gpus) {
    out["gpus"].push_back(
        {gpu.uuid, gpu.index, gpu.name, gpu.peak ? Reference(*gpu.peak) : Reference(nullptr),
         gpu.utilization_pct ? Reference(*gpu.utilization_pct) : Reference(nullptr),
         gpu.power_mw ? Reference(*gpu.power_mw) : Reference(nullptr)});
  }
  out["job"] = view->job;
  out["memory"] = view->memory ? Reference(*view->memory) : Reference(nullptr);
  out["code"] = view->code;
  out["idle_ms"] = view->idle_ms ? Reference(*view->idle_ms) : Reference(nullptr);
  out["adopted"] = view->adopted;
  return out;
}

Reference generate_value() {
  switch (*rc::gen::inRange(0, 8)) {
    case 0:
      return Reference(nullptr);
    case 1:
      return Reference(*rc::gen::arbitrary<std::uint64_t>());
    case 2:
      return Reference(*rc::gen::inRange<std::int64_t>(-5, 200));
    case 3:
      return Reference(1.5);
    case 4:
      return Reference(*rc::gen::string<std::string>());
    case 5:
      return Reference::array(
          {Reference::object({{"uuid", "GPU-3"}, {"name", 4}}), Reference::object()});
    case 6:
      return Reference::object({{"uuid", "GPU-4"}, {"more", Reference::array({1, "two"})}});
    default:
      return Reference("exited");
  }
}

std::string generate_line() {
  HistoryEntry entry;
  entry.id = *rc::gen::element<std::string>("aaaaaaaa", "", "an id of another length");
  entry.uid = 1000;
  entry.command = *rc::gen::string<std::string>();
  entry.label =
      *rc::gen::element<std::string>("", "a \"b\"\n\x1b", "na\xc3\xafve \xf0\x9f\x98\x80");
  entry.gpus = {{"GPU-1", "0", "A6000", gib(5), 83}, {"GPU-2", "1", "A6000"}};
  entry.asked = entry.granted = entry.ended = TimePoint(std::chrono::seconds(1'763'280'000));
  entry.ending = *rc::gen::element(Ending::running, Ending::exited, Ending::lost);
  if (*rc::gen::arbitrary<bool>()) entry.idle = std::chrono::milliseconds(1500);
  return serialize_entry(entry);
}

// A line with a value (or a value of a GPU) replaced or added.
std::string change_line(const std::string& line) {
  Reference tree = Reference::parse(line);
  std::vector<std::string> keys{"of a later version"};
  for (const auto& [key, value] : tree.items()) keys.push_back(key);
  tree[*rc::gen::elementOf(keys)] = generate_value();
  if (tree["gpus"].is_array() && !tree["gpus"].empty() && *rc::gen::arbitrary<bool>()) {
    Reference& gpu = tree["gpus"][0];
    if (gpu.is_object()) {
      gpu[*rc::gen::element("uuid", "index", "name", "peak", "utilization_pct", "power_mw")] =
          generate_value();
    }
  }
  std::string text = tree.dump(-1, ' ', false, Reference::error_handler_t::replace);
  if (*rc::gen::arbitrary<bool>()) {  // a duplicate key
    text.back() = ',';
    text += fmt::format("\"{}\":{}}}", *rc::gen::elementOf(keys),
                        generate_value().dump(-1, ' ', true, Reference::error_handler_t::replace));
  }
  return text;
}

TEST(EntryReader, clamps_times_that_are_too_large) {
  EntryReader reader;
  const EntryView* const view = reader.read(
      R"({"id":"a","uid":1,"command":"","label":"","within":"","gpus":[],"asked_ms":1,)"
      R"("granted_ms":9223372036854775807,"ended_ms":3,"ending":"lost","idle_ms":9223372036854775807})");
  ASSERT_NE(view, nullptr);
  EXPECT_EQ(view->granted_ms, 4'000'000'000'000);
  EXPECT_EQ(view->idle_ms, 4'000'000'000'000);
}

RC_GTEST_PROP(EntryReader, recognizes_canonical_lines, ()) {
  const std::string line = generate_line();
  EntryReader reader;
  RC_ASSERT(reader.read(line) != nullptr);
  // If this fails, serialize_entry() has changed: change EntryReader::read_canonical(), too.
  RC_ASSERT(reader.was_canonical());
  const std::string other = fmt::format(" {}", line);
  RC_ASSERT(reader.read(other) != nullptr);
  RC_ASSERT(!reader.was_canonical());
}

RC_GTEST_PROP(EntryReader, reads_like_the_reference_reader, ()) {
  EntryReader reader;
  for (int i = 0; i < 10; ++i) {  // with the same reader, which must not mix lines
    const std::string line =
        *rc::gen::arbitrary<bool>() ? change_line(generate_line()) : generate_line();
    RC_ASSERT(read_as_json(reader, line) == ReferenceReader::read(line));
  }
}

std::string damage_line(std::string line) {
  const int changes = *rc::gen::inRange(1, 4);
  for (int i = 0; i < changes; ++i) {
    const auto place = *rc::gen::inRange<std::size_t>(0, line.size());
    const char value = *rc::gen::oneOf(rc::gen::arbitrary<char>(),
                                       rc::gen::element('"', '{', '}', ',', '\\', '0', '-', ' '));
    if (value == '\0') continue;  // ends a text for nlohmann
    if (*rc::gen::arbitrary<bool>()) {
      line[place] = value;
    } else {
      line.insert(place, 1, value);
    }
  }
  return line;
}

RC_GTEST_PROP(EntryReader, handles_damage_like_the_reference_reader, ()) {
  EntryReader reader;
  for (int i = 0; i < 10; ++i) {
    const std::string line = damage_line(generate_line());
    RC_ASSERT(read_as_json(reader, line) == ReferenceReader::read(line));
  }
}

}  // namespace
}  // namespace berth
