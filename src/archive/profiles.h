// What was learned of each type of job: its memory on each GPU, and how long it runs.
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
  std::string user{};               // of several hosts: whose, instead of `uid`
  std::string command;              // the last that ran
  std::optional<Bytes> set_memory;  // by the user, whatever is learned
  std::optional<std::chrono::milliseconds> set_time;
  unsigned failures = 0;         // since the last success
  std::string framework;         // see Usage
  std::vector<ProfileRun> runs;  // the last ones, the latest at the end
  std::string change_id{};       // of several hosts: tells who wrote it from others
};

// So many are kept.
constexpr std::size_t kMaxRuns = 50;

// What to expect of the next run.
struct NeedsEstimate {
  std::optional<Bytes> memory;                    // to be reserved; nothing: unknown
  std::optional<Bytes> quantile;                  // of the peaks, without the margin
  double margin = 0;                              // of 1
  std::optional<std::chrono::milliseconds> time;  // nothing: unknown
};

// A high quantile of the peaks, with a margin that is smaller the more runs agree.
NeedsEstimate estimate_needs(const Profile& profile);

// Takes a run in.
void add_run(Profile& profile, ProfileRun run);

// As text, and from it; nothing if that is damaged: then it is learned anew.
std::string serialize_profile(const Profile& profile);
std::optional<Profile> parse_profile(std::string_view text);
constexpr std::size_t kMaxProfileBytes = 256 << 10;  // as text

// By user and type.
struct ProfileList {
  std::vector<Profile> profiles;
  std::size_t damaged = 0;  // what is no profile, and was left out
};

}  // namespace berth
