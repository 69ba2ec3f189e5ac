// Tests of the last hour's samples.
#include "serve/load_history.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace berth {
namespace {

using nlohmann::json;

std::vector<Status> seen(const std::string& uuid, unsigned load, std::optional<Bytes> used) {
  GpuStatus gpu;
  gpu.placed.gpu.uuid = uuid;
  gpu.placed.gpu.utilization_pct = load;
  gpu.placed.gpu.memory_used = used;
  Status status;
  status.host = "h";
  status.gpus.push_back(gpu);
  return {status};
}

TimePoint at(int seconds) {
  return TimePoint(std::chrono::seconds(1'800'000'000 + seconds));
}

json loads(const Samples& samples, std::size_t gpu = 0) {
  return json::parse(samples.all())["hosts"][0]["gpus"][gpu]["utilization_pct"];
}

TEST(Samples, OnePointInTenSeconds) {
  Samples samples;
  EXPECT_TRUE(samples.take(seen("a", 1, mib(5)), at(0)));
  EXPECT_FALSE(samples.take(seen("a", 2, mib(5)), at(9)));
  EXPECT_TRUE(samples.take(seen("a", 3, {}), at(10)));
  EXPECT_EQ(loads(samples), json({1, 3}));
  const json newest = json::parse(samples.newest());
  EXPECT_EQ(newest["hosts"][0]["gpus"][0]["memory_used_mib"], nullptr);
  EXPECT_EQ(newest["time"], "2027-01-15T08:00:10Z");
}

TEST(Samples, WhatNobodySawIsUnknown) {
  Samples samples;
  samples.take(seen("a", 1, {}), at(0));
  samples.take_nothing(at(10));
  samples.take(seen("a", 4, {}), at(40));
  EXPECT_EQ(loads(samples), json({1, nullptr, nullptr, nullptr, 4}));
}

TEST(Samples, WhoComesLaterIsUnknownBefore) {
  Samples samples;
  samples.take(seen("a", 1, {}), at(0));
  samples.take(seen("b", 2, {}), at(10));
  EXPECT_EQ(loads(samples, 0), json({1, nullptr}));
  EXPECT_EQ(loads(samples, 1), json({nullptr, 2}));
}

TEST(Samples, AnHourAndNoMore) {
  Samples samples;
  samples.take(seen("gone", 1, {}), at(-10));
  for (int i = 0; i < 400; ++i) samples.take(seen("a", 7, {}), at(10 * i));
  EXPECT_EQ(loads(samples).size(), kMostSamples);
  EXPECT_EQ(json::parse(samples.all())["hosts"][0]["gpus"].size(), 1U);
}

TEST(Samples, AClockThatJumpsBeginsAnew) {
  Samples samples;
  samples.take(seen("a", 1, {}), at(0));
  EXPECT_TRUE(samples.take(seen("a", 2, {}), at(1'000'000)));
  EXPECT_EQ(loads(samples), json({2}));
  EXPECT_TRUE(samples.take(seen("a", 3, {}), at(0)));
  EXPECT_EQ(loads(samples), json({3}));
}

}  // namespace
}  // namespace berth
