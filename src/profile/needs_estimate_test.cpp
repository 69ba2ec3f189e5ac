// Unit tests of needs_estimate.h.
#include "profile/needs_estimate.h"

#include <gtest/gtest.h>

namespace berth {
namespace {

using std::chrono::milliseconds;

Profile after(const std::vector<std::optional<Bytes>>& peaks,
              milliseconds lasted = milliseconds(1000)) {
  Profile profile;
  profile.type = "train";
  for (const auto& peak : peaks) add_run(profile, {TimePoint(), peak, lasted, false, false});
  return profile;
}

double margin_after(const std::vector<std::optional<Bytes>>& peaks) {
  return estimate_needs(after(peaks)).margin;
}

TEST(NeedsEstimate, is_empty_without_runs) {
  const NeedsEstimate expected = estimate_needs(Profile{});
  EXPECT_FALSE(expected.memory);
  EXPECT_FALSE(expected.time);
}

TEST(NeedsEstimate, margin_shrinks_as_runs_agree) {
  EXPECT_DOUBLE_EQ(margin_after({gib(5)}), 0.10);
  EXPECT_DOUBLE_EQ(margin_after({gib(5), gib(5)}), 0.05);
  EXPECT_DOUBLE_EQ(margin_after(std::vector<std::optional<Bytes>>(5, gib(5))), 0.02);
  EXPECT_DOUBLE_EQ(margin_after(std::vector<std::optional<Bytes>>(40, gib(5))), 0.02);
}

TEST(NeedsEstimate, margin_grows_with_the_spread) {
  EXPECT_GT(margin_after({gib(2), gib(8)}), 0.2);
  EXPECT_LE(margin_after({mib(1), gib(8)}), 0.25);
}

TEST(NeedsEstimate, uses_a_high_quantile) {
  std::vector<std::optional<Bytes>> peaks(49, gib(5));
  peaks.insert(peaks.begin(), gib(20));
  EXPECT_EQ(estimate_needs(after(peaks)).quantile, gib(5));  // one of fifty may be an outlier
  peaks.resize(10);
  EXPECT_EQ(estimate_needs(after(peaks)).quantile, gib(20));  // one of ten is not
}

TEST(NeedsEstimate, has_a_minimum) {
  EXPECT_EQ(estimate_needs(after({Bytes{1}})).memory, mib(512));
}

TEST(NeedsEstimate, ignores_runs_without_a_peak) {
  EXPECT_FALSE(estimate_needs(after({std::nullopt, std::nullopt, std::nullopt})).memory);
  EXPECT_EQ(estimate_needs(after({std::nullopt, gib(4)})).quantile, gib(4));
}

TEST(NeedsEstimate, time_needs_three_similar_runs) {
  EXPECT_FALSE(estimate_needs(after({gib(1), gib(1)})).time);
  EXPECT_EQ(estimate_needs(after({gib(1), gib(1), gib(1)})).time, milliseconds(1250));
  Profile profile = after({gib(1), gib(1), gib(1)});
  add_run(profile, {TimePoint(), gib(1), milliseconds(100'000), false, false});
  EXPECT_FALSE(estimate_needs(profile).time);
}

TEST(NeedsEstimate, values_set_by_the_user_win) {
  Profile profile = after({gib(1)});
  profile.set_memory = gib(9);
  profile.set_time = milliseconds(7);
  EXPECT_EQ(estimate_needs(profile).memory, gib(9));
  EXPECT_EQ(estimate_needs(profile).time, milliseconds(7));
}

}  // namespace
}  // namespace berth
