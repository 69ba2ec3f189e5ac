// What follows from the runs, and its text; see profiles.h.
#include "archive/profiles.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "archive/history.h"

namespace berth {
namespace {

using Json = nlohmann::ordered_json;
// For reading: ordered_json takes quadratic time for an object with many keys.
using ParsedJson = nlohmann::json;
using std::chrono::milliseconds;

// Of 50 runs the largest may be an accident; of fewer, none is.
constexpr std::size_t kQuantilePct = 98;
constexpr double kLeastMargin = 0.02;
constexpr double kMargin = 0.10;  // after one run
constexpr double kMostMargin = 0.25;
// Also for who did not use its GPU so far.
constexpr Bytes kLeastReserve = mib(512);
// A run time is a promise to who waits: not before it is known to be one.
constexpr std::size_t kTimedRuns = 3;
constexpr double kTimeMargin = 1.25;
constexpr int kTimeSpread = 4;
constexpr std::size_t kLongestType = 8192;  // bytes: a path and a little more

template <class Time>
std::int64_t to_ms(Time time) {
  return std::chrono::floor<milliseconds>(time).count();
}

Json optional_bytes(const std::optional<Bytes>& size) {
  return size ? Json(size->count) : Json(nullptr);
}

std::optional<std::uint64_t> number(const ParsedJson& object, const char* key) {
  constexpr std::uint64_t kLargest = 1ULL << 53;
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned()) return std::nullopt;
  return std::min(found->get<std::uint64_t>(), kLargest);
}

std::optional<Bytes> bytes(const ParsedJson& object, const char* key) {
  const auto count = number(object, key);
  return count ? std::optional(Bytes{*count}) : std::nullopt;
}

std::optional<milliseconds> duration(const ParsedJson& object, const char* key) {
  constexpr std::uint64_t kLongestMs = 1ULL << 41;
  const auto count = number(object, key);
  return count ? std::optional(milliseconds(std::min(*count, kLongestMs))) : std::nullopt;
}

std::string text(const ParsedJson& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

bool flag(const ParsedJson& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

// The last peaks, in their order by size.
std::vector<std::uint64_t> peaks_of(const Profile& profile) {
  std::vector<std::uint64_t> peaks;
  for (const ProfileRun& run : profile.runs) {
    if (run.peak) peaks.push_back(run.peak->count);
  }
  std::sort(peaks.begin(), peaks.end());
  return peaks;
}

void estimate_memory(const Profile& profile, Estimate& result) {
  const auto peaks = peaks_of(profile);
  if (peaks.empty()) return;
  const auto count = static_cast<double>(peaks.size());
  const std::size_t rank = (kQuantilePct * peaks.size() + 99) / 100;  // rounded up
  const std::uint64_t quantile = peaks[rank - 1];
  const double spread = quantile == 0
                            ? 0
                            : static_cast<double>(quantile - std::min(peaks.front(), quantile)) /
                                  static_cast<double>(quantile);
  // What has varied so far may vary further, less so the longer it was watched.
  result.margin = std::clamp(std::max(kMargin, spread) / count, kLeastMargin, kMostMargin);
  result.quantile = Bytes{quantile};
  const auto with_margin =
      static_cast<std::uint64_t>(static_cast<double>(quantile) * (1 + result.margin));
  const std::uint64_t mib_up = (with_margin + mib(1).count - 1) / mib(1).count;
  result.memory = Bytes{std::max(mib_up * mib(1).count, kLeastReserve.count)};
}

void estimate_time(const Profile& profile, Estimate& result) {
  std::vector<milliseconds> times;
  for (const ProfileRun& run : profile.runs) {
    if (!run.out_of_memory) times.push_back(run.lasted);
  }
  if (times.size() < kTimedRuns) return;
  std::sort(times.begin(), times.end());
  const milliseconds longest = times.back();
  if (longest > kTimeSpread * times[times.size() / 2]) return;
  const double ms = static_cast<double>(longest.count()) * kTimeMargin;
  result.time = milliseconds(std::max<std::int64_t>(static_cast<std::int64_t>(ms), 1));
}

}  // namespace

std::string write_profile(const Profile& profile) {
  Json runs = Json::array();
  for (const ProfileRun& run : profile.runs) {
    Json one{{"ended_ms", to_ms(run.ended.time_since_epoch())},
             {"peak", optional_bytes(run.peak)},
             {"lasted_ms", run.lasted.count()}};
    if (run.out_of_memory) one["out_of_memory"] = true;
    if (run.doubtful) one["doubtful"] = true;
    runs.push_back(std::move(one));
  }
  Json json{{"type", profile.type},
            {"command", cut(profile.command, EntryLimits::command)},
            {"failures", profile.failures}};
  if (profile.set_memory) json["set_memory"] = profile.set_memory->count;
  if (profile.set_time) json["set_time_ms"] = profile.set_time->count();
  if (!profile.framework.empty()) json["framework"] = profile.framework;
  if (!profile.change.empty()) json["change"] = profile.change;
  json["runs"] = std::move(runs);
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<Profile> parse_profile(std::string_view text_read) {
  const ParsedJson json = ParsedJson::parse(text_read, nullptr, false);
  if (!json.is_object() || text(json, "type").empty()) return std::nullopt;
  Profile profile;
  profile.type = text(json, "type");
  if (profile.type.size() > kLongestType) return std::nullopt;
  profile.command = cut(text(json, "command"), EntryLimits::command);
  profile.set_memory = bytes(json, "set_memory");
  profile.set_time = duration(json, "set_time_ms");
  profile.failures = static_cast<unsigned>(
      std::min<std::uint64_t>(number(json, "failures").value_or(0), kMostRuns));
  profile.framework = cut(text(json, "framework"), EntryLimits::gpu_text);
  const auto runs = json.find("runs");
  if (runs == json.end() || !runs->is_array()) return profile;
  for (const ParsedJson& one : *runs) {
    if (!one.is_object() || profile.runs.size() >= kMostRuns) continue;
    profile.runs.push_back({TimePoint(duration(one, "ended_ms").value_or(milliseconds(0))),
                            bytes(one, "peak"),
                            duration(one, "lasted_ms").value_or(milliseconds(0)),
                            flag(one, "out_of_memory"), flag(one, "doubtful")});
  }
  return profile;
}

Estimate estimate(const Profile& profile) {
  Estimate result;
  estimate_memory(profile, result);
  estimate_time(profile, result);
  if (profile.set_memory) result.memory = profile.set_memory;
  if (profile.set_time) result.time = profile.set_time;
  return result;
}

void learn(Profile& profile, ProfileRun run) {
  if (!run.out_of_memory) profile.failures = 0;
  profile.runs.push_back(run);
  if (profile.runs.size() > kMostRuns) profile.runs.erase(profile.runs.begin());
}

}  // namespace berth
