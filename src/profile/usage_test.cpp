// Unit tests of usage.h and of classify_exit(): samples and the usage that follows from them.
#include "profile/usage.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/process.h"
#include "profile/learning.h"

namespace berth {
namespace {

using namespace std::chrono_literals;
constexpr std::int64_t kOther =
    1;  // init: not a descendant of this process, and not of a lease of this user

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

Gpu make_baseline_gpu(std::vector<GpuProcess> processes = {}, Bytes used = {}) {
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

GpuSample make_sample(std::vector<GpuProcess> processes, std::optional<unsigned> utilization = 50,
                      Bytes used = gib(1)) {
  return {"GPU-1", gib(24), used, utilization, std::nullopt, std::move(processes), true};
}

const UsageMeter::Clock::time_point kStart{};

TEST(UsageMeter, records_the_peak_of_the_sum) {
  UsageMeter meter(lease_of_this_process(gib(8)), {make_baseline_gpu()});
  const std::int64_t me = ::getpid();
  meter.add_sample({make_sample({process(me, gib(2))})}, kStart);
  meter.add_sample({make_sample({process(me, gib(5)), process(kOther, gib(9))})}, kStart + 1s);
  meter.add_sample({make_sample({process(me, gib(1))})}, kStart + 2s);
  EXPECT_EQ(meter.usage().peak(), gib(5));
  EXPECT_EQ(meter.usage().samples, 3U);
  EXPECT_EQ(meter.usage().samples_on_gpu, 3U);
  EXPECT_FALSE(meter.usage().has_unattributed);
}

TEST(UsageMeter, exclusive_lease_owns_all_later_processes) {
  UsageMeter meter(lease_of_this_process(std::nullopt),
                   {make_baseline_gpu({process(kOther, gib(1))})});
  meter.add_sample({make_sample({process(kOther, gib(1)), process(999'999'999, gib(3))})}, kStart);
  EXPECT_EQ(meter.usage().peak(), gib(3));
}

GpuProcess process_of(std::int64_t pid, std::optional<uid_t> uid) {
  GpuProcess one = process(pid, gib(1));
  one.uid = uid;
  one.lineage.clear();
  return one;
}

TEST(UsageMeter, finds_another_users_process_on_a_gpu_of_its_own) {
  constexpr std::int64_t kPid = 999'999'999;
  const uid_t other = ::geteuid() + 1;
  UsageMeter meter(lease_of_this_process(std::nullopt),
                   {make_baseline_gpu({process_of(7, other)})});
  // One that was there before, the job's own, root's, and one whose user is unknown.
  meter.add_sample({make_sample({process_of(7, other), process_of(kPid, ::geteuid()),
                                 process_of(kPid + 1, 0), process_of(kPid + 2, std::nullopt)})},
                   kStart);
  EXPECT_FALSE(meter.intruder());
  meter.add_sample({make_sample({process_of(kPid + 3, other)})}, kStart + 1s);
  ASSERT_TRUE(meter.intruder());
  EXPECT_EQ(meter.intruder()->process.pid, kPid + 3);
  EXPECT_EQ(meter.intruder()->uuid, "GPU-1");
  // On a shared GPU it may have a lease, too.
  UsageMeter beside(lease_of_this_process(gib(8)), {make_baseline_gpu()});
  beside.add_sample({make_sample({process_of(kPid, other)})}, kStart);
  EXPECT_FALSE(beside.intruder());
}

TEST(UsageMeter, remembers_a_lost_gpu) {
  UsageMeter meter(lease_of_this_process(std::nullopt), {make_baseline_gpu()});
  GpuSample sample = make_sample({});
  meter.add_sample({sample}, kStart);
  EXPECT_EQ(meter.lost_gpu(), "");
  sample.lost = true;
  meter.add_sample({sample}, kStart + 1s);
  EXPECT_EQ(meter.lost_gpu(), "GPU-1");
}

TEST(UsageMeter, infers_unknown_memory_only_for_exclusive_leases) {
  UsageMeter alone(lease_of_this_process(std::nullopt), {make_baseline_gpu({}, mib(300))});
  alone.add_sample({make_sample({process(999'999'999, std::nullopt)}, 50, mib(1300))}, kStart);
  EXPECT_EQ(alone.usage().peak(), mib(1000));
  EXPECT_TRUE(alone.usage().memory_is_inferred);
  UsageMeter beside(lease_of_this_process(gib(8)), {make_baseline_gpu()});
  beside.add_sample({make_sample({process(::getpid(), std::nullopt)})}, kStart);
  EXPECT_EQ(beside.usage().peak(), std::nullopt);
  EXPECT_TRUE(beside.usage().has_unattributed);
}

TEST(UsageMeter, ignores_host_memory) {
  UsageMeter alone(lease_of_this_process(std::nullopt), {make_baseline_gpu({}, mib(300))});
  GpuSample unified = make_sample({process(999'999'999, std::nullopt)}, 50, mib(1300));
  unified.memory_is_hosts = true;
  alone.add_sample({unified}, kStart);
  EXPECT_EQ(alone.usage().peak(), std::nullopt);
  EXPECT_TRUE(alone.usage().has_unattributed);
}

TEST(UsageMeter, takes_the_framework_from_the_jobs_processes) {
  UsageMeter meter(lease_of_this_process(gib(8)), {make_baseline_gpu()});
  auto other = process(kOther, gib(9));
  other.framework = "TensorFlow";
  meter.add_sample({make_sample({other})}, kStart);
  EXPECT_EQ(meter.usage().framework, "");
  auto ours = process(::getpid(), gib(20));
  ours.framework = "JAX";
  meter.add_sample({make_sample({ours, other})}, kStart + 1s);
  EXPECT_EQ(meter.usage().framework, "JAX");
}

TEST(UsageMeter, incomplete_process_list_is_unattributed) {
  UsageMeter meter(lease_of_this_process(std::nullopt), {make_baseline_gpu()});
  GpuSample unread = make_sample({});
  unread.complete = false;
  meter.add_sample({unread}, kStart);
  EXPECT_TRUE(meter.usage().has_unattributed);
}

TEST(UsageMeter, measures_utilization_and_idle_time) {
  UsageMeter meter(lease_of_this_process(std::nullopt), {make_baseline_gpu()});
  meter.add_sample({make_sample({}, 100)}, kStart);
  meter.add_sample({make_sample({}, 100)}, kStart + 1s);
  EXPECT_NE(meter.load(), GpuLoad::idle);
  meter.add_sample({make_sample({}, 0)}, kStart + 4s);
  EXPECT_EQ(meter.load(), GpuLoad::idle);
  EXPECT_DOUBLE_EQ(*meter.usage().gpus[0].utilization_pct, 25);
  EXPECT_EQ(meter.usage().idle, 3000ms);
}

TEST(UsageMeter, averages_the_power_over_the_time_in_which_it_was_known) {
  UsageMeter meter(lease_of_this_process(std::nullopt), {make_baseline_gpu()});
  const auto add = [&](std::optional<double> power_w, std::chrono::seconds time) {
    GpuSample sample = make_sample({});
    sample.power_w = power_w;
    meter.add_sample({sample}, kStart + time);
  };
  add(50, 0s);
  EXPECT_EQ(meter.usage().gpus[0].power_w, std::nullopt);
  add(100, 3s);
  add(std::nullopt, 60s);
  add(300, 61s);
  EXPECT_DOUBLE_EQ(*meter.usage().gpus[0].power_w, 150);
}

TEST(UsageMeter, unknown_is_not_idle) {
  UsageMeter meter(lease_of_this_process(std::nullopt), {make_baseline_gpu()});
  meter.add_sample({make_sample({}, std::nullopt)}, kStart);
  meter.add_sample({make_sample({}, std::nullopt)}, kStart + 1s);
  EXPECT_NE(meter.load(), GpuLoad::idle);
  EXPECT_EQ(meter.usage().idle, std::nullopt);
  EXPECT_EQ(meter.usage().gpus[0].utilization_pct, std::nullopt);
  meter.add_sample({}, kStart + 2s);
  EXPECT_NE(meter.load(), GpuLoad::idle);
}

Usage make_usage(Bytes peak, double max_memory_fraction) {
  Usage usage;
  usage.gpus = {{"GPU-1", peak, std::nullopt}};
  usage.max_memory_fraction = max_memory_fraction;
  return usage;
}

TEST(ClassifyExit, uses_the_output_or_the_gpu_memory) {
  const Record shared = lease_of_this_process(gib(8));
  const Record alone = lease_of_this_process(std::nullopt);
  EXPECT_EQ(classify_exit(true, shared, make_usage(gib(9), 1), "CUDA out of memory"),
            ExitClass::success);
  EXPECT_EQ(classify_exit(false, shared, make_usage(gib(1), 0.1), "torch.OutOfMemoryError: CUDA"),
            ExitClass::out_of_memory);
  EXPECT_EQ(classify_exit(false, shared, make_usage(gib(9), 0.99), ""), ExitClass::out_of_memory);
  EXPECT_EQ(classify_exit(false, alone, make_usage(gib(23), 0.97), ""), ExitClass::out_of_memory);
  // A shared card may be full because of other jobs.
  EXPECT_EQ(classify_exit(false, shared, make_usage(gib(7), 0.99), "KeyError: 'x'"),
            ExitClass::failure);
  EXPECT_EQ(classify_exit(false, shared, make_usage(gib(9), 0.5), ""), ExitClass::failure);
  EXPECT_EQ(classify_exit(false, alone, Usage{}, ""), ExitClass::failure);
}

}  // namespace
}  // namespace berth
