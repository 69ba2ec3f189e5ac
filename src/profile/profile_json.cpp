// The JSON of `berth profile`; see profile_json.h.
#include "profile/profile_json.h"

#include "base/json.h"
#include "base/users.h"

namespace berth {
namespace {

Json seconds(const std::optional<std::chrono::milliseconds>& time) {
  return time ? Json(std::chrono::duration<double>(*time).count()) : Json(nullptr);
}

Json run_json(const ProfileRun& run) {
  return {{"ended", format_iso_time(run.ended)},
          {"peak_mib", mib_or_null(run.peak)},
          {"lasted_s", seconds(run.lasted)},
          {"out_of_memory", run.out_of_memory},
          {"doubtful", run.doubtful || !run.peak}};
}

}  // namespace

std::string profiles_json(const std::vector<Profile>& profiles) {
  std::string text;
  for (const Profile& profile : profiles) {
    const NeedsEstimate estimate = estimate_needs(profile);
    Json runs = Json::array();
    for (const ProfileRun& run : profile.runs) runs.push_back(run_json(run));
    const Json json{
        {"type", profile.type},
        {"user", user_name(profile.uid, profile.user)},
        {"command", profile.command},
        {"reserves_mib", mib_or_null(estimate.memory)},
        {"quantile_mib", mib_or_null(estimate.quantile)},
        {"margin_pct", estimate.margin * 100},
        {"time_s", seconds(estimate.time)},
        {"set_memory_mib", mib_or_null(profile.set_memory)},
        {"set_time_s", seconds(profile.set_time)},
        {"failures", profile.failures},
        {"framework", profile.framework.empty() ? Json(nullptr) : Json(profile.framework)},
        {"runs", std::move(runs)}};
    text += json.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
  }
  return text;
}

}  // namespace berth
