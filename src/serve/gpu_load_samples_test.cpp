// Tests of the samples of the last hour.
#include "serve/gpu_load_samples.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace berth::serve {
namespace {

using nlohmann::json;

std::vector<Status> make_status(const std::string& uuid, unsigned load, std::optional<Bytes> used) {
  GpuStatus gpu;
  gpu.view.gpu.uuid = uuid;
  gpu.view.gpu.utilization_pct = load;
  gpu.view.gpu.memory_used = used;
  Status status;
  status.host = "h";
  status.gpus.push_back(gpu);
  return {status};
}

TimePoint at(int second) {
  return TimePoint(std::chrono::seconds(1'800'000'000 + second));
}

json utilizations(const GpuLoadSamples& history, std::size_t gpu = 0) {
  return json::parse(history.all_json())["hosts"][0]["gpus"][gpu]["utilization_pct"];
}

TEST(GpuLoadSamples, OnePointInTenSeconds) {
  GpuLoadSamples history;
  EXPECT_TRUE(history.add_sample(make_status("a", 1, mib(5)), at(0)));
  EXPECT_FALSE(history.add_sample(make_status("a", 2, mib(5)), at(9)));
  EXPECT_TRUE(history.add_sample(make_status("a", 3, {}), at(10)));
  EXPECT_EQ(utilizations(history), json({1, 3}));
  const json newest = json::parse(history.newest_json());
  EXPECT_EQ(newest["hosts"][0]["gpus"][0]["memory_used_mib"], nullptr);
  EXPECT_EQ(newest["time"], "2027-01-15T08:00:10Z");
}

TEST(GpuLoadSamples, MissedSamplesAreUnknown) {
  GpuLoadSamples history;
  history.add_sample(make_status("a", 1, {}), at(0));
  history.add_unknown_sample(at(10));
  history.add_sample(make_status("a", 4, {}), at(40));
  EXPECT_EQ(utilizations(history), json({1, nullptr, nullptr, nullptr, 4}));
}

TEST(GpuLoadSamples, NewGpusAreUnknownBeforeTheirFirstSample) {
  GpuLoadSamples history;
  history.add_sample(make_status("a", 1, {}), at(0));
  history.add_sample(make_status("b", 2, {}), at(10));
  EXPECT_EQ(utilizations(history, 0), json({1, nullptr}));
  EXPECT_EQ(utilizations(history, 1), json({nullptr, 2}));
}

TEST(GpuLoadSamples, KeepsOneHour) {
  GpuLoadSamples history;
  history.add_sample(make_status("gone", 1, {}), at(-10));
  for (int i = 0; i < 400; ++i) history.add_sample(make_status("a", 7, {}), at(10 * i));
  EXPECT_EQ(utilizations(history).size(), kMaxSamples);
  EXPECT_EQ(json::parse(history.all_json())["hosts"][0]["gpus"].size(), 1U);
}

TEST(GpuLoadSamples, RestartsAfterAClockJump) {
  GpuLoadSamples history;
  history.add_sample(make_status("a", 1, {}), at(0));
  EXPECT_TRUE(history.add_sample(make_status("a", 2, {}), at(1'000'000)));
  EXPECT_EQ(utilizations(history), json({2}));
  EXPECT_TRUE(history.add_sample(make_status("a", 3, {}), at(0)));
  EXPECT_EQ(utilizations(history), json({3}));
}

TEST(GpuLoadSamples, AreRestoredWithUnknownSamplesForTheTimeBetween) {
  GpuLoadSamples before;
  before.add_sample(make_status("a", 55, mib(5)), at(0));
  before.add_sample(make_status("a", 66, {}), at(10));
  GpuLoadSamples after;
  after.restore(before.serialize(), at(25));
  after.add_sample(make_status("a", 77, mib(7)), at(40));
  const json all = utilizations(after);
  ASSERT_EQ(all.size(), kMaxSamples);
  EXPECT_EQ(json(std::vector<json>(all.end() - 6, all.end())),
            json({nullptr, 55, 66, nullptr, nullptr, 77}));
  const json memory = json::parse(after.all_json())["hosts"][0]["gpus"][0]["memory_used_mib"];
  EXPECT_EQ(json(std::vector<json>(memory.end() - 5, memory.end())),
            json({5, nullptr, nullptr, nullptr, 7}));
}

TEST(GpuLoadSamples, DoesNotRestoreWhatIsOldDamagedOrFromTheFuture) {
  GpuLoadSamples before;
  before.add_sample(make_status("a", 55, {}), at(0));
  const std::string text = before.serialize();
  const auto restored = [](const std::string& file, TimePoint now) {
    GpuLoadSamples samples;
    samples.restore(file, now);
    return json::parse(samples.all_json())["hosts"].size();
  };
  EXPECT_EQ(restored(text, at(3500)), 1U);
  EXPECT_EQ(restored(text, at(3600)), 0U);
  EXPECT_EQ(restored(text, at(-10)), 0U);
  EXPECT_EQ(restored(text.substr(0, text.size() / 2), at(0)), 0U);
  for (const char* damaged :
       {"", "[]", "{}", R"({"slot": -1, "hosts": []})", R"({"slot": 180000000, "hosts": [7]})",
        R"({"slot": 180000000, "hosts": [{"host": "h", "gpus": [{"uuid": 1}]}]})",
        R"({"slot": 180000000, "hosts": [{"host": "h", "gpus": [
            {"uuid": "a", "utilization_pct": [1, 2], "memory_used_mib": [1]}]}]})"}) {
    EXPECT_EQ(restored(damaged, at(0)), 0U) << damaged;
  }
  GpuLoadSamples samples;
  samples.restore(R"({"slot": 180000000, "hosts": [{"host": "h", "gpus": [
      {"uuid": "a", "utilization_pct": [101, "x", 9], "memory_used_mib": [1, -1, 2]}]}]})",
                  at(0));
  const json all = utilizations(samples);
  EXPECT_EQ(json(std::vector<json>(all.end() - 3, all.end())), json({nullptr, nullptr, 9}));
}

}  // namespace
}  // namespace berth::serve
