// A profile: memory and run time of earlier runs of a job type. Also converts it to text and back.
//
// Profiles are stored in files (profile_files.h) or in Redis (cluster/store/redis_profiles.h);
// profile/profile_store.h chooses. The estimate for the next run: profile/needs_estimate.h.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "base/quantity.h"
#include "schedule/plan.h"

namespace berth {

// A run from which Berth learned.
struct ProfileRun {
  TimePoint ended;
  std::optional<Bytes> peak;  // on the GPU where it was highest; absent if the run was too short
  std::chrono::milliseconds lasted{};
  bool out_of_memory = false;  // `peak` is then the memory that the next run should have
  bool doubtful = false;  // the driver did not report the peak completely; see docs/learning.md
};

struct Profile {
  std::string type;
  uid_t uid = 0;
  std::string user{};               // with a server: the owner's name, which replaces `uid`
  std::string command;              // of the last run
  std::optional<Bytes> set_memory;  // set by the user; replaces the estimate
  std::optional<std::chrono::milliseconds> set_time;  // the same
  unsigned failures = 0;                              // since the last success
  std::string framework;                              // see Usage::framework
  std::vector<ProfileRun> runs;                       // the last kMaxRuns, the latest at the end
  // With a server: random in each version that is written, so that two versions with the same runs
  // differ. Not read back.
  std::string change_id{};
};

constexpr std::size_t kMaxRuns = 50;

// Adds a run, and removes the oldest if there are more than kMaxRuns.
void add_run(Profile& profile, ProfileRun run);

// As JSON text; the owner is not part of it. parse_profile() returns nullopt for a damaged text:
// then Berth learns the type again.
std::string serialize_profile(const Profile& profile);
std::optional<Profile> parse_profile(std::string_view text);
constexpr std::size_t kMaxProfileBytes = 256 << 10;  // of the text

struct ProfileList {
  std::vector<Profile> profiles;
  std::size_t damaged = 0;  // the number of entries that could not be read
};

}  // namespace berth
