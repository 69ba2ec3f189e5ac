// Estimates needs from runs, and converts profiles to and from JSON; see profile.h.
#include "archive/profile.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "archive/entry_view.h"
#include "archive/history.h"
#include "base/json_fields.h"

namespace berth {
namespace {

using Json = nlohmann::ordered_json;
using std::chrono::milliseconds;

// Of 50 runs this ignores the largest peak, which may be an outlier. Of fewer it is the largest.
constexpr std::size_t kQuantilePct = 98;
constexpr double kMinMargin = 0.02;
constexpr double kFirstRunMargin = 0.10;  // after one run
constexpr double kMaxMargin = 0.25;
// Reserved even for a job that did not use its GPU so far.
constexpr Bytes kMinReserve = mib(512);
// The scheduler relies on a run time for its reservations, so a few runs must agree on it.
constexpr std::size_t kMinTimedRuns = 3;
constexpr double kTimeMargin = 1.25;
constexpr int kMaxTimeSpread = 4;            // the longest run, as a multiple of the median
constexpr std::size_t kMaxTypeBytes = 8192;  // a path and a little more

Json bytes_or_null(const std::optional<Bytes>& size) {
  return size ? Json(size->count) : Json(nullptr);
}

std::optional<std::uint64_t> read_number(const ParsedJson& object, const char* key) {
  constexpr std::uint64_t kMaxNumber = 1ULL << 53;
  const auto number = number_field(object, key);
  return number ? std::optional(std::min(*number, kMaxNumber)) : std::nullopt;
}

std::optional<Bytes> read_bytes(const ParsedJson& object, const char* key) {
  const auto count = read_number(object, key);
  return count ? std::optional(Bytes{*count}) : std::nullopt;
}

std::optional<milliseconds> read_duration(const ParsedJson& object, const char* key) {
  constexpr std::uint64_t kMaxDurationMs = 1ULL << 41;
  const auto count = read_number(object, key);
  return count ? std::optional(milliseconds(std::min(*count, kMaxDurationMs))) : std::nullopt;
}

std::vector<std::uint64_t> sorted_peaks(const Profile& profile) {
  std::vector<std::uint64_t> peaks;
  for (const ProfileRun& run : profile.runs) {
    if (run.peak) peaks.push_back(run.peak->count);
  }
  std::sort(peaks.begin(), peaks.end());
  return peaks;
}

void estimate_memory(const Profile& profile, NeedsEstimate& result) {
  const auto peaks = sorted_peaks(profile);
  if (peaks.empty()) return;
  const auto count = static_cast<double>(peaks.size());
  const std::size_t rank = (kQuantilePct * peaks.size() + 99) / 100;  // rounded up
  const std::uint64_t quantile = peaks[rank - 1];
  const double spread = quantile == 0
                            ? 0
                            : static_cast<double>(quantile - std::min(peaks.front(), quantile)) /
                                  static_cast<double>(quantile);
  // Peaks that have varied may vary more in the next run, but less so after many runs.
  result.margin = std::clamp(std::max(kFirstRunMargin, spread) / count, kMinMargin, kMaxMargin);
  result.quantile = Bytes{quantile};
  const auto with_margin =
      static_cast<std::uint64_t>(static_cast<double>(quantile) * (1 + result.margin));
  const std::uint64_t rounded_mib = (with_margin + mib(1).count - 1) / mib(1).count;
  result.memory = Bytes{std::max(rounded_mib * mib(1).count, kMinReserve.count)};
}

void estimate_time(const Profile& profile, NeedsEstimate& result) {
  std::vector<milliseconds> times;
  for (const ProfileRun& run : profile.runs) {
    if (!run.out_of_memory) times.push_back(run.lasted);
  }
  if (times.size() < kMinTimedRuns) return;
  std::sort(times.begin(), times.end());
  const milliseconds longest = times.back();
  if (longest > kMaxTimeSpread * times[times.size() / 2]) return;
  const double ms = static_cast<double>(longest.count()) * kTimeMargin;
  result.time = milliseconds(std::max<std::int64_t>(static_cast<std::int64_t>(ms), 1));
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
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<Profile> parse_profile(std::string_view text) {
  const ParsedJson json = ParsedJson::parse(text, nullptr, false);
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
  const auto runs = json.find("runs");
  if (runs == json.end() || !runs->is_array()) return profile;
  for (const ParsedJson& one : *runs) {
    if (!one.is_object() || profile.runs.size() >= kMaxRuns) continue;
    profile.runs.push_back({TimePoint(read_duration(one, "ended_ms").value_or(milliseconds(0))),
                            read_bytes(one, "peak"),
                            read_duration(one, "lasted_ms").value_or(milliseconds(0)),
                            bool_field(one, "out_of_memory"), bool_field(one, "doubtful")});
  }
  return profile;
}

NeedsEstimate estimate_needs(const Profile& profile) {
  NeedsEstimate result;
  estimate_memory(profile, result);
  estimate_time(profile, result);
  if (profile.set_memory) result.memory = profile.set_memory;
  if (profile.set_time) result.time = profile.set_time;
  return result;
}

void add_run(Profile& profile, ProfileRun run) {
  if (!run.out_of_memory) profile.failures = 0;
  profile.runs.push_back(run);
  if (profile.runs.size() > kMaxRuns) profile.runs.erase(profile.runs.begin());
}

}  // namespace berth
