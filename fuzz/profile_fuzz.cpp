// Profiles of job types, also those of other users.
#include "archive/profiles.h"
#include "fuzz/fuzz.h"

namespace berth {

void fuzz(std::string_view input) {
  auto profile = parse_profile(input);
  if (!profile) return;
  check(profile->runs.size() <= kMostRuns, "the number of runs is bounded");
  (void)estimate(*profile);  // no overflow
  const std::string written = write_profile(*profile);
  const auto again = parse_profile(written);
  check(again.has_value(), "what was read can be written and read again");
  check(write_profile(*again) == written, "writing keeps every field");
  learn(*profile, {});
  check(profile->runs.size() <= kMostRuns, "learning keeps the bound");
}

}  // namespace berth
