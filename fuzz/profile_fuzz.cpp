// Fuzzes profiles of job types. Profiles of other users are read, too.
#include "archive/profile.h"
#include "fuzz/fuzz.h"
#include "profile/needs_estimate.h"

namespace berth {

void fuzz(std::string_view input) {
  auto profile = parse_profile(input);
  if (!profile) return;
  check(profile->runs.size() <= kMaxRuns, "the number of runs is bounded");
  (void)estimate_needs(*profile);  // must not overflow
  const std::string written = serialize_profile(*profile);
  const auto again = parse_profile(written);
  check(again.has_value(), "what was read can be written and read again");
  check(serialize_profile(*again) == written, "writing keeps every field");
  add_run(*profile, {});
  check(profile->runs.size() <= kMaxRuns, "learning keeps the bound");
}

}  // namespace berth
