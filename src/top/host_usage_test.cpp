// Tests of the parsers of /proc/stat and /proc/meminfo: absent and wrong values are unknown.
#include "top/host_usage.h"

#include <gtest/gtest.h>

namespace berth::top {
namespace {

TEST(HostUsage, busy_time_is_neither_idle_nor_waiting) {
  const auto times = parse_cpu_times("cpu  10 20 30 1000 500 1 2 3 40 50\ncpu0 1 2 3 4 5\n");
  ASSERT_TRUE(times);
  EXPECT_EQ(times->busy, 66U);  // without the guests' times, which user and nice contain
  EXPECT_EQ(times->total, 1566U);
}

TEST(HostUsage, an_old_kernel_has_fewer_columns) {
  const auto times = parse_cpu_times("cpu 10 20 30 40\n");
  ASSERT_TRUE(times);
  EXPECT_EQ(times->busy, 60U);
  EXPECT_EQ(times->total, 100U);
}

TEST(HostUsage, other_text_is_unknown) {
  for (const char* text : {"", "intr 1 2 3 4", "cpu", "cpu 1 2 3", "cpu a b c d"}) {
    EXPECT_FALSE(parse_cpu_times(text)) << text;
  }
}

TEST(HostUsage, memory_that_can_be_reclaimed_is_not_in_use) {
  HostUsage usage;
  parse_host_memory("MemTotal:  8192 kB\nMemFree:  100 kB\nMemAvailable:  2048 kB\n", usage);
  EXPECT_EQ(usage.memory_total, mib(8));
  EXPECT_EQ(usage.memory_used, mib(6));
  HostUsage old_kernel;
  parse_host_memory("MemTotal:  8192 kB\nMemFree:  100 kB\n", old_kernel);
  EXPECT_FALSE(old_kernel.memory_total);
  EXPECT_FALSE(old_kernel.memory_used);
}

TEST(HostUsage, the_first_reading_has_no_processor_share) {
  HostUsageReader reader;
  EXPECT_FALSE(reader.read().cpu_share);
  EXPECT_TRUE(reader.read().memory_total);
}

}  // namespace
}  // namespace berth::top
