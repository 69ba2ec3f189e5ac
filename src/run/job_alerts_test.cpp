// Tests of job_alerts.h: once for each end, and once for each time in which the GPUs are idle.
#include "run/job_alerts.h"

#include <gtest/gtest.h>

namespace berth {
namespace {

using namespace std::chrono_literals;
using std::chrono::seconds;

constexpr TimePoint kGranted{seconds(1'700'000'000)};

TEST(EndAlert, is_due_before_the_end_once) {
  EndAlert alert(10min, kGranted);
  EXPECT_EQ(alert.due(), std::nullopt);
  alert.set_end(kGranted + 2h, kGranted + 1s);
  EXPECT_EQ(alert.due(), kGranted + 110min);
  alert.set_reported();
  alert.set_end(kGranted + 2h, kGranted + 111min);
  EXPECT_EQ(alert.due(), std::nullopt);
}

TEST(EndAlert, is_due_again_for_another_end) {
  EndAlert alert(10min, kGranted);
  alert.set_end(kGranted + 2h, kGranted);
  alert.set_reported();
  alert.set_end(kGranted + 3h, kGranted + 111min);
  EXPECT_EQ(alert.due(), kGranted + 170min);
  alert.set_end(std::nullopt, kGranted + 112min);
  EXPECT_EQ(alert.due(), std::nullopt);
  alert.set_end(kGranted + 4h, kGranted + 113min);
  EXPECT_EQ(alert.due(), kGranted + 230min);
}

TEST(EndAlert, does_not_come_at_once_for_a_near_end) {
  EndAlert alert(10min, kGranted);
  alert.set_end(kGranted + 4min, kGranted);
  EXPECT_EQ(alert.due(), kGranted + 2min);
  alert.set_end(kGranted + 6min, kGranted + 2min);
  EXPECT_EQ(alert.due(), kGranted + 4min) << "half of what is left";
  alert.set_end(kGranted + 1min, kGranted + 3min);
  EXPECT_EQ(alert.due(), kGranted + 1min) << "an end that has passed";
}

TEST(IdleAlert, tells_once_until_a_gpu_was_in_use) {
  IdleAlert alert(30min);
  const IdleAlert::Clock::time_point start{};
  EXPECT_EQ(alert.observe(GpuLoad::idle, start), std::nullopt);
  EXPECT_EQ(alert.observe(GpuLoad::idle, start + 29min), std::nullopt);
  EXPECT_EQ(alert.observe(GpuLoad::idle, start + 31min), 31min);
  EXPECT_EQ(alert.observe(GpuLoad::idle, start + 90min), std::nullopt);
  EXPECT_EQ(alert.observe(GpuLoad::in_use, start + 91min), std::nullopt);
  EXPECT_EQ(alert.observe(GpuLoad::idle, start + 92min), std::nullopt);
  EXPECT_EQ(alert.observe(GpuLoad::idle, start + 122min), 30min);
}

TEST(IdleAlert, an_unknown_load_is_neither_idle_nor_in_use) {
  IdleAlert alert(30min);
  const IdleAlert::Clock::time_point start{};
  EXPECT_EQ(alert.observe(GpuLoad::idle, start), std::nullopt);
  EXPECT_EQ(alert.observe(GpuLoad::unknown, start + 29min), std::nullopt);
  EXPECT_EQ(alert.observe(GpuLoad::idle, start + 31min), std::nullopt) << "the time begins again";
  EXPECT_EQ(alert.observe(GpuLoad::idle, start + 61min), 30min);
  EXPECT_EQ(alert.observe(GpuLoad::unknown, start + 62min), std::nullopt);
  EXPECT_EQ(alert.observe(GpuLoad::idle, start + 63min), std::nullopt);
  EXPECT_EQ(alert.observe(GpuLoad::idle, start + 99min), std::nullopt) << "told already";
}

}  // namespace
}  // namespace berth
