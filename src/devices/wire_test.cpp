// Tests of wire.h: values are restored unchanged, and malformed bytes are refused.
#include "devices/wire.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace berth {
namespace {

Snapshot example() {
  Gpu full;
  full.index = {3, 1};
  full.health = Health::lost;
  full.problem = "gone";
  full.uuid = "MIG-1";
  full.name = std::string("a\0b", 3);
  full.memory_total = gib(24);
  full.memory_used = mib(5);
  full.memory_used_counts_reserved = true;
  full.utilization_pct = 97;
  full.power_w = 12.5;
  full.compute_mode = ComputeMode::prohibited;
  full.display_active = false;
  full.processes = {{4711, ProcessKind::graphics, std::nullopt, "Xorg", 1000}};
  full.processes[0].lineage = {{4711, 1000, "Xorg", false}, {4700, 0, "gdm", true}};
  full.processes[0].lease = "abcd1234";
  return {"570.86", {Gpu{}, full}};
}

TEST(Wire, carries_a_snapshot_unchanged) {
  const auto back = wire::unpack<Snapshot>(wire::pack(Result<Snapshot>(example())));
  ASSERT_TRUE(back && *back);
  const Snapshot& got = **back;
  EXPECT_EQ(got.driver_version, "570.86");
  ASSERT_EQ(got.gpus.size(), 2U);
  EXPECT_EQ(got.gpus[0].memory_total, std::nullopt);
  const Gpu& gpu = got.gpus[1];
  EXPECT_EQ(to_string(gpu.index), "3:1");
  EXPECT_EQ(gpu.name, std::string("a\0b", 3));
  EXPECT_EQ(gpu.memory_used, mib(5));
  EXPECT_TRUE(gpu.memory_used_counts_reserved);
  EXPECT_EQ(gpu.utilization_pct, 97U);
  EXPECT_EQ(gpu.temperature_c, std::nullopt);
  EXPECT_EQ(gpu.power_w, 12.5);
  EXPECT_EQ(gpu.compute_mode, ComputeMode::prohibited);
  EXPECT_EQ(gpu.display_active, false);
  ASSERT_EQ(gpu.processes.size(), 1U);
  EXPECT_EQ(gpu.processes[0].uid, 1000U);
  EXPECT_EQ(gpu.processes[0].memory, std::nullopt);
  ASSERT_EQ(gpu.processes[0].lineage.size(), 2U);
  EXPECT_EQ(gpu.processes[0].lineage[1].name, "gdm");
  EXPECT_TRUE(gpu.processes[0].lineage[1].is_root);
  EXPECT_EQ(gpu.processes[0].lease, "abcd1234");
}

TEST(Wire, carries_a_sample_unchanged) {
  GpuSample sample{"GPU-1", gib(24), mib(5), 97U, 12.5, {}, true, true, true};
  using Samples = std::vector<GpuSample>;
  const auto back = wire::unpack<Samples>(wire::pack(Result<Samples>({sample, GpuSample{}})));
  ASSERT_TRUE(back && *back && (*back)->size() == 2);
  EXPECT_EQ((**back)[0].uuid, "GPU-1");
  EXPECT_EQ((**back)[0].memory_used, mib(5));
  EXPECT_EQ((**back)[0].utilization_pct, 97U);
  EXPECT_EQ((**back)[0].power_w, 12.5);
  EXPECT_TRUE((**back)[0].complete && (**back)[0].memory_is_hosts);
  EXPECT_EQ((**back)[1].power_w, std::nullopt);
}

TEST(Wire, carries_an_error) {
  const auto back =
      wire::unpack<Topology>(wire::pack(Result<Topology>(fail(ErrorKind::no_driver, "no driver"))));
  ASSERT_TRUE(back);
  ASSERT_FALSE(*back);
  EXPECT_EQ(back->error().message, "no driver");
}

TEST(Wire, refuses_what_was_cut_short_or_has_something_behind_it) {
  const std::string bytes = wire::pack(Result<Snapshot>(example()));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(wire::unpack<Snapshot>(bytes.substr(0, size))) << size;
  }
  EXPECT_FALSE(wire::unpack<Snapshot>(bytes + "x"));
}

TEST(Wire, refuses_numbers_that_mean_nothing) {
  // A flag must be 0 or 1.
  EXPECT_FALSE(wire::unpack<Snapshot>(std::string("\2\0\0\0\0\0", 6)));
  EXPECT_FALSE(wire::unpack<Snapshot>(std::string("\1\2\0\0\0\0", 6)));
  // An unknown health must not be read as a healthy GPU.
  Snapshot snapshot{std::nullopt, {Gpu{}}};
  for (const int health : {0, 1, 2, 3, 200}) {
    snapshot.gpus[0].health = static_cast<Health>(health);
    const auto back = wire::unpack<Snapshot>(wire::pack(Result<Snapshot>(snapshot)));
    EXPECT_EQ(back.has_value(), health <= 2) << health;
  }
  const auto odd = fail(static_cast<ErrorKind>(-1), "");
  EXPECT_FALSE(wire::unpack<Snapshot>(wire::pack(Result<Snapshot>(odd))));
}

RC_GTEST_PROP(Wire, survives_any_damage, (std::size_t place, char value)) {
  std::string bytes = wire::pack(Result<Snapshot>(example()));
  bytes[place % bytes.size()] = value;
  (void)wire::unpack<Snapshot>(bytes);  // any result is right; it must not crash
}

RC_GTEST_PROP(Wire, survives_any_bytes, (const std::string& bytes)) {
  (void)wire::unpack<Snapshot>(bytes);
  (void)wire::unpack<Topology>("\x01" + bytes);
}

}  // namespace
}  // namespace berth
