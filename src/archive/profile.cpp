// Converts profiles to and from JSON; see profile.h.
#include "archive/profile.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "archive/entry_view.h"
#include "archive/history.h"
#include "base/json.h"
#include "base/json_fields.h"

namespace berth {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kMaxTypeBytes = 8192;  // a path and a little more

Json bytes_or_null(const std::optional<Bytes>& size) {
  return size ? Json(size->count) : Json(nullptr);
}

std::optional<std::uint64_t> read_number(const Json& object, const char* key) {
  constexpr std::uint64_t kMaxNumber = 1ULL << 53;
  const auto number = number_field(object, key);
  return number ? std::optional(std::min(*number, kMaxNumber)) : std::nullopt;
}

std::optional<Bytes> read_bytes(const Json& object, const char* key) {
  const auto count = read_number(object, key);
  return count ? std::optional(Bytes{*count}) : std::nullopt;
}

std::optional<milliseconds> read_duration(const Json& object, const char* key) {
  constexpr std::uint64_t kMaxDurationMs = 1ULL << 41;
  const auto count = read_number(object, key);
  return count ? std::optional(milliseconds(std::min(*count, kMaxDurationMs))) : std::nullopt;
}

}  // namespace

std::string serialize_profile(const Profile& profile) {
  Json runs = Json::array();
  for (const ProfileRun& run : profile.runs) {
    Json one{{"ended_ms", to_ms(run.ended)},
             {"peak", bytes_or_null(run.peak)},
             {"lasted_ms", run.lasted.count()}};
    if (run.out_of_memory) one["out_of_memory"] = true;
    if (run.doubtful) one["doubtful"] = true;
    runs.push_back(std::move(one));
  }
  Json json{{"type", profile.type},
            {"command", truncate_utf8(profile.command, EntryLimits::kCommandBytes)},
            {"failures", profile.failures}};
  if (profile.set_memory) json["set_memory"] = profile.set_memory->count;
  if (profile.set_time) json["set_time_ms"] = profile.set_time->count();
  if (!profile.framework.empty()) json["framework"] = profile.framework;
  if (!profile.change_id.empty()) json["change"] = profile.change_id;
  json["runs"] = std::move(runs);
  return to_utf8_json(json, 1) + "\n";
}

std::optional<Profile> parse_profile(std::string_view text) {
  const Json json = parse_json(text).value_or(Json());
  if (!json.is_object() || string_field(json, "type").empty()) return std::nullopt;
  Profile profile;
  profile.type = string_field(json, "type");
  if (profile.type.size() > kMaxTypeBytes) return std::nullopt;
  profile.command = truncate_utf8(string_field(json, "command"), EntryLimits::kCommandBytes);
  profile.set_memory = read_bytes(json, "set_memory");
  profile.set_time = read_duration(json, "set_time_ms");
  profile.failures = static_cast<unsigned>(
      std::min<std::uint64_t>(read_number(json, "failures").value_or(0), kMaxRuns));
  profile.framework = truncate_utf8(string_field(json, "framework"), EntryLimits::kGpuTextBytes);
  const Json::Array* runs = array_field(json, "runs");
  if (runs == nullptr) return profile;
  for (const Json& one : *runs) {
    if (!one.is_object() || profile.runs.size() >= kMaxRuns) continue;
    profile.runs.push_back({TimePoint(read_duration(one, "ended_ms").value_or(milliseconds(0))),
                            read_bytes(one, "peak"),
                            read_duration(one, "lasted_ms").value_or(milliseconds(0)),
                            bool_field(one, "out_of_memory"), bool_field(one, "doubtful")});
  }
  return profile;
}

void add_run(Profile& profile, ProfileRun run) {
  if (!run.out_of_memory) profile.failures = 0;
  profile.runs.push_back(run);
  if (profile.runs.size() > kMaxRuns) profile.runs.erase(profile.runs.begin());
}

}  // namespace berth
