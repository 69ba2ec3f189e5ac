// Reads and changes profiles in files or on the server; see profile_store.h.
#include "profile/profile_store.h"

#include <algorithm>
#include <fmt/format.h>
#include <tuple>
#include <unistd.h>
#include <utility>
#include <vector>

#include "archive/profile_files.h"
#include "archive/user_folder.h"
#include "base/json.h"
#include "base/time_text.h"
#include "base/users.h"
#include "cluster/store/redis_profiles.h"
#include "profile/needs_estimate.h"

namespace berth {
namespace {

const std::string& own_user_name() {
  return user_name(::geteuid());
}

ProfileList sort_profiles(ProfileList list) {
  std::sort(list.profiles.begin(), list.profiles.end(), [](const Profile& a, const Profile& b) {
    return std::tie(a.user, a.uid, a.type) < std::tie(b.user, b.uid, b.type);
  });
  return list;
}

// Appends this user's profiles: those of the server, and of this host's files those that the server
// does not have.
Result<void> list_own_and_old(RedisProfiles& server, const HarbourLocation& harbour,
                              ProfileList& list) {
  std::vector<std::string> types;
  TRY(server.append_profiles(own_user_name(), list, types));
  ProfileList files = read_own_profile_files(archive_path(harbour));
  list.damaged += files.damaged;
  for (Profile& old : files.profiles) {
    if (std::find(types.begin(), types.end(), old.type) != types.end()) continue;
    old.user = own_user_name();
    list.profiles.push_back(std::move(old));
  }
  return {};
}

// This user's profile on the server or, if the server has none, in this host's file.
Result<RedisProfiles::StoredProfile> read_current(RedisProfiles& server,
                                                  const HarbourLocation& harbour,
                                                  const std::string& type) {
  RedisProfiles::StoredProfile stored = TRY(server.read(own_user_name(), type));
  if (stored.digest.empty()) stored.profile = read_profile_file(archive_path(harbour), type);
  return stored;
}

// Calls `change` until it returns true: it reads and writes, and returns false if another process
// wrote in between.
Result<void> retry_until_written(const std::function<Result<bool>()>& change) {
  constexpr int kMaxTries = 1000;
  for (int i = 0; i < kMaxTries; ++i) {
    if (TRY(change())) return {};
  }
  return fail(ErrorKind::io, "other processes keep changing the profile; try again later");
}

tl::unexpected<Error> unavailable_error(const RedisUrl& url) {
  return fail(ErrorKind::unavailable, fmt::format("{} did not answer a moment ago; try again later",
                                                  format_redacted_url(url)));
}

Json seconds_json(const std::optional<std::chrono::milliseconds>& time) {
  return time ? Json(std::chrono::duration<double>(*time).count()) : Json(nullptr);
}

Json run_json(const ProfileRun& run) {
  return {{"ended", format_iso_time(run.ended)},
          {"peak_mib", mib_or_null(run.peak)},
          {"lasted_s", seconds_json(run.lasted)},
          {"out_of_memory", run.out_of_memory},
          {"doubtful", run.doubtful || !run.peak}};
}

}  // namespace

std::optional<Profile> read_profile(const HarbourLocation& harbour, const std::string& type) {
  if (harbour.url) {
    RedisProfiles server(*harbour.url);
    if (!server.was_recently_unavailable()) {
      if (auto stored = read_current(server, harbour, type)) return std::move(stored->profile);
    }
  }
  return read_profile_file(archive_path(harbour), type);
}

std::optional<Profile> find_other_users_profile(const HarbourLocation& harbour,
                                                const std::string& type) {
  std::vector<Profile> others;
  if (harbour.url) {
    RedisProfiles server(*harbour.url);
    if (server.was_recently_unavailable()) return std::nullopt;
    if (auto found = server.read_other_users(own_user_name(), type)) others = std::move(*found);
  } else {
    others = read_other_users_profile_files(archive_path(harbour), type);
  }
  std::optional<Profile> best;
  for (Profile& profile : others) {
    profile.set_memory.reset();
    profile.set_time.reset();
    if (!estimate_needs(profile).memory) continue;
    if (!best || profile.runs.size() > best->runs.size()) best = std::move(profile);
  }
  return best;
}

Result<ProfileList> list_own_profiles(const HarbourLocation& harbour) {
  if (!harbour.url) return sort_profiles(read_own_profile_files(archive_path(harbour)));
  ProfileList list;
  RedisProfiles server(*harbour.url);
  TRY(list_own_and_old(server, harbour, list));
  return sort_profiles(std::move(list));
}

Result<ProfileList> list_all_profiles(const HarbourLocation& harbour) {
  if (!harbour.url) return sort_profiles(read_all_profile_files(archive_path(harbour)));
  ProfileList list;
  RedisProfiles server(*harbour.url);
  const std::vector<std::string> users = TRY(server.read_users());
  TRY(list_own_and_old(server, harbour, list));
  for (const std::string& user : users) {
    std::vector<std::string> types;
    if (user != own_user_name()) TRY(server.append_profiles(user, list, types));
  }
  return sort_profiles(std::move(list));
}

Result<void> change_profile(const HarbourLocation& harbour, const std::string& type,
                            const std::function<void(Profile& profile)>& change) {
  if (!harbour.url) return change_profile_file(archive_path(harbour), type, change);
  RedisProfiles server(*harbour.url);
  if (server.was_recently_unavailable()) return unavailable_error(*harbour.url);
  return retry_until_written([&]() -> Result<bool> {
    const RedisProfiles::StoredProfile before = TRY(read_current(server, harbour, type));
    Profile profile = before.profile.value_or(Profile{});
    profile.type = type;
    change(profile);
    return server.replace(own_user_name(), profile, before.digest);
  });
}

Result<bool> forget_profile(const HarbourLocation& harbour, const std::string& type) {
  if (!harbour.url) return forget_profile_file(archive_path(harbour), type);
  RedisProfiles server(*harbour.url);
  bool known = false;
  TRY(retry_until_written([&]() -> Result<bool> {
    const RedisProfiles::StoredProfile before = TRY(read_current(server, harbour, type));
    known = before.profile.has_value();
    return server.forget(own_user_name(), type, before.digest);
  }));
  return known;
}

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
        {"time_s", seconds_json(estimate.time)},
        {"set_memory_mib", mib_or_null(profile.set_memory)},
        {"set_time_s", seconds_json(profile.set_time)},
        {"failures", profile.failures},
        {"framework", profile.framework.empty() ? Json(nullptr) : Json(profile.framework)},
        {"runs", std::move(runs)}};
    text += to_ascii_json(json) + "\n";
  }
  return text;
}

}  // namespace berth
