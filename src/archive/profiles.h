// What was learned of each type of job: its memory on each GPU, and how long it runs.
//
// Each type has a file in its user's folder of the archive, which everybody can read and he alone
// writes: docs/learning.md describes it. It is replaced as a whole, under a lock of the folder, so
// that of two runs that end at once neither is lost.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "archive/folder.h"
#include "base/quantity.h"
#include "schedule/plan.h"

namespace berth {

// One run that taught something.
struct ProfileRun {
  TimePoint ended;
  std::optional<Bytes> peak;  // on the GPU where it was most; nothing: too short to be seen
  std::chrono::milliseconds lasted{};
  bool out_of_memory = false;  // then `peak` is what it should have had
  bool doubtful = false;       // the peak was not told by the driver, but concluded
};

struct Profile {
  std::string type;
  uid_t uid = 0;
  std::string command;              // the last that ran
  std::optional<Bytes> set_memory;  // by the user, whatever is learned
  std::optional<std::chrono::milliseconds> set_time;
  unsigned failures = 0;         // since the last success
  std::string framework;         // see Usage
  std::vector<ProfileRun> runs;  // the last ones, the latest at the end
};

// So many are kept.
constexpr std::size_t kMostRuns = 50;

// What to expect of the next run.
struct Estimate {
  std::optional<Bytes> memory;                    // to be reserved; nothing: unknown
  std::optional<Bytes> quantile;                  // of the peaks, without the margin
  double margin = 0;                              // of 1
  std::optional<std::chrono::milliseconds> time;  // nothing: unknown
};

// A high quantile of the peaks, with a margin that is smaller the more runs agree.
Estimate estimate(const Profile& profile);

// Takes a run in.
void learn(Profile& profile, ProfileRun run);

// This user's profile of a type, or nothing.
std::optional<Profile> read_profile(const std::string& archive, const std::string& type);
// Another user's with a memory to go by: that of the most runs.
std::optional<Profile> others_profile(const std::string& archive, const std::string& type);
// Everybody's, by user and type.
std::vector<Profile> all_profiles(const std::string& archive);

// Changes this user's profile of a type, which is made where there is none.
Result<void> change_profile(const std::string& archive, const std::string& type,
                            const std::function<void(Profile& profile)>& change);
// Whether there was one.
Result<bool> forget_profile(const std::string& archive, const std::string& type);

}  // namespace berth
