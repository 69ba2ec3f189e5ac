// Samples, and what they come to.
#include "profile/usage.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/pid_namespace.h"
#include "profile/learning.h"

namespace berth {
namespace {

using namespace std::chrono_literals;
constexpr std::int64_t kOther = 1;  // not a descendant of ours, and not our user's lease

Record lease_of_this_process(std::optional<Bytes> memory) {
  Record record;
  record.id = "aaaaaaaa";
  record.uid = ::geteuid();
  record.pid = ::getpid();
  record.pid_namespace = pid_namespace();
  record.uuids = {"GPU-1"};
  record.request.memory = memory;
  return record;
}

Gpu before(std::vector<GpuProcess> processes = {}, Bytes used = {}) {
  Gpu gpu;
  gpu.uuid = "GPU-1";
  gpu.memory_used = used;
  gpu.processes = std::move(processes);
  return gpu;
}

GpuProcess process(std::int64_t pid, std::optional<Bytes> memory) {
  GpuProcess process{pid, ProcessKind::compute, memory, std::nullopt, 0U};
  process.lineage = {{pid, ::geteuid(), "python"}};
  return process;
}

GpuUse use(std::vector<GpuProcess> processes, std::optional<unsigned> utilization = 50,
           Bytes used = gib(1)) {
  return {"GPU-1", gib(24), used, utilization, std::move(processes), true};
}

const UsageMeter::Clock::time_point kStart{};

TEST(UsageMeter, the_peak_of_the_sum_counts) {
  UsageMeter meter(lease_of_this_process(gib(8)), {before()});
  const std::int64_t me = ::getpid();
  meter.take({use({process(me, gib(2))})}, kStart);
  meter.take({use({process(me, gib(5)), process(kOther, gib(9))})}, kStart + 1s);
  meter.take({use({process(me, gib(1))})}, kStart + 2s);
  EXPECT_EQ(meter.usage().peak(), gib(5));
  EXPECT_EQ(meter.usage().samples, 3U);
  EXPECT_EQ(meter.usage().seen, 3U);
  EXPECT_FALSE(meter.usage().unclear);
}

TEST(UsageMeter, who_has_it_alone_has_all_that_came_later) {
  UsageMeter meter(lease_of_this_process(std::nullopt), {before({process(kOther, gib(1))})});
  meter.take({use({process(kOther, gib(1)), process(999'999'999, gib(3))})}, kStart);
  EXPECT_EQ(meter.usage().peak(), gib(3));
}

TEST(UsageMeter, memory_that_is_not_told_is_the_cards_where_that_is_ours_alone) {
  UsageMeter alone(lease_of_this_process(std::nullopt), {before({}, mib(300))});
  alone.take({use({process(999'999'999, std::nullopt)}, 50, mib(1300))}, kStart);
  EXPECT_EQ(alone.usage().peak(), mib(1000));
  EXPECT_TRUE(alone.usage().from_card);
  UsageMeter beside(lease_of_this_process(gib(8)), {before()});
  beside.take({use({process(::getpid(), std::nullopt)})}, kStart);
  EXPECT_EQ(beside.usage().peak(), std::nullopt);
  EXPECT_TRUE(beside.usage().unclear);
}

TEST(UsageMeter, memory_of_the_host_says_nothing_of_a_job) {
  UsageMeter alone(lease_of_this_process(std::nullopt), {before({}, mib(300))});
  GpuUse unified = use({process(999'999'999, std::nullopt)}, 50, mib(1300));
  unified.memory_is_hosts = true;
  alone.take({unified}, kStart);
  EXPECT_EQ(alone.usage().peak(), std::nullopt);
  EXPECT_TRUE(alone.usage().unclear);
}

TEST(UsageMeter, the_framework_is_that_of_a_process_of_the_job) {
  UsageMeter meter(lease_of_this_process(gib(8)), {before()});
  auto other = process(kOther, gib(9));
  other.framework = "TensorFlow";
  meter.take({use({other})}, kStart);
  EXPECT_EQ(meter.usage().framework, "");
  auto ours = process(::getpid(), gib(20));
  ours.framework = "JAX";
  meter.take({use({ours, other})}, kStart + 1s);
  EXPECT_EQ(meter.usage().framework, "JAX");
}

TEST(UsageMeter, a_list_that_is_not_whole_proves_no_absence) {
  UsageMeter meter(lease_of_this_process(std::nullopt), {before()});
  GpuUse unread = use({});
  unread.complete = false;
  meter.take({unread}, kStart);
  EXPECT_TRUE(meter.usage().unclear);
}

TEST(UsageMeter, utilization_by_time_and_idle_time) {
  UsageMeter meter(lease_of_this_process(std::nullopt), {before()});
  meter.take({use({}, 100)}, kStart);
  meter.take({use({}, 100)}, kStart + 1s);
  EXPECT_FALSE(meter.idle());
  meter.take({use({}, 0)}, kStart + 4s);
  EXPECT_TRUE(meter.idle());
  EXPECT_DOUBLE_EQ(*meter.usage().gpus[0].utilization_pct, 25);
  EXPECT_EQ(meter.usage().idle, 3000ms);
}

TEST(UsageMeter, unknown_is_not_idle) {
  UsageMeter meter(lease_of_this_process(std::nullopt), {before()});
  meter.take({use({}, std::nullopt)}, kStart);
  meter.take({use({}, std::nullopt)}, kStart + 1s);
  EXPECT_FALSE(meter.idle());
  EXPECT_EQ(meter.usage().idle, std::nullopt);
  EXPECT_EQ(meter.usage().gpus[0].utilization_pct, std::nullopt);
  meter.take({}, kStart + 2s);
  EXPECT_FALSE(meter.idle());
}

Usage with(Bytes peak, double fullest) {
  Usage usage;
  usage.gpus = {{"GPU-1", peak, std::nullopt}};
  usage.fullest = fullest;
  return usage;
}

TEST(JudgeEnd, by_the_words_or_by_the_drivers_figures) {
  const Record shared = lease_of_this_process(gib(8));
  const Record alone = lease_of_this_process(std::nullopt);
  EXPECT_EQ(classify_exit(true, shared, with(gib(9), 1), "CUDA out of memory"), ExitClass::success);
  EXPECT_EQ(classify_exit(false, shared, with(gib(1), 0.1), "torch.OutOfMemoryError: CUDA"),
            ExitClass::out_of_memory);
  EXPECT_EQ(classify_exit(false, shared, with(gib(9), 0.99), ""), ExitClass::out_of_memory);
  EXPECT_EQ(classify_exit(false, alone, with(gib(23), 0.97), ""), ExitClass::out_of_memory);
  // Beside others a full card is nothing special.
  EXPECT_EQ(classify_exit(false, shared, with(gib(7), 0.99), "KeyError: 'x'"), ExitClass::failure);
  EXPECT_EQ(classify_exit(false, shared, with(gib(9), 0.5), ""), ExitClass::failure);
  EXPECT_EQ(classify_exit(false, alone, Usage{}, ""), ExitClass::failure);
}

}  // namespace
}  // namespace berth
