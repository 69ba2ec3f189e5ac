// Unit tests of profile.h.
#include "archive/profile.h"

#include <gtest/gtest.h>

namespace berth {
namespace {

// In quadratic time this would take minutes, and the test would time out.
TEST(ParseProfile, parses_many_keys_in_linear_time) {
  std::string text = "{\"type\":\"x\"";
  for (int i = 0; i < 200'000; ++i) text += ",\"" + std::to_string(i) + "\":1";
  EXPECT_TRUE(parse_profile(text + "}"));
}

TEST(AddRun, keeps_the_last_runs_and_resets_failures) {
  Profile profile;
  profile.failures = 3;
  for (std::size_t i = 0; i < kMaxRuns + 5; ++i) {
    add_run(profile, {TimePoint(), Bytes{i}, std::chrono::milliseconds(1), false, false});
  }
  ASSERT_EQ(profile.runs.size(), kMaxRuns);
  EXPECT_EQ(profile.runs.front().peak, Bytes{5});
  EXPECT_EQ(profile.failures, 0U);
}

}  // namespace
}  // namespace berth
