// Unit tests of the states of GPUs: a GPU whose state is unknown must never be free.
#include "status/gpu_state.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace berth {
namespace {

GpuStateReason classify(const Gpu& gpu) {
  return berth::classify(make_host_view({"", {gpu}}, {}, {}).gpus.front());
}

bool contains_all(const std::string& text, const std::vector<std::string>& parts) {
  return std::all_of(parts.begin(), parts.end(),
                     [&](const std::string& part) { return text.find(part) != std::string::npos; });
}

bool has_reason(const Gpu& gpu, const std::vector<std::string>& parts) {
  return contains_all(classify(gpu).reason, parts);
}

Gpu idle() {
  Gpu gpu;
  gpu.memory_total = gib(24);
  gpu.memory_used = mib(8);
  return gpu;
}

GpuProcess process(ProcessKind kind, std::optional<Bytes> memory) {
  return {5'000'001, kind, memory, "python", std::nullopt};
}

TEST(ClassifyGpu, an_idle_gpu_is_free) {
  EXPECT_EQ(classify(idle()).state, GpuState::free);
  EXPECT_EQ(classify(idle()).reason, "");
}

TEST(ClassifyGpu, a_compute_process_is_a_stranger) {
  Gpu gpu = idle();
  gpu.memory_used = mib(9400);
  gpu.processes = {process(ProcessKind::compute, mib(9318))};
  EXPECT_EQ(classify(gpu).state, GpuState::stranger);
  EXPECT_TRUE(has_reason(gpu, {"python", "5000001", "9.1 GiB"})) << classify(gpu).reason;
  gpu.processes = {process(ProcessKind::compute, std::nullopt)};
  EXPECT_EQ(classify(gpu).state, GpuState::stranger);
  EXPECT_TRUE(has_reason(gpu, {"python", "5000001"})) << classify(gpu).reason;
}

TEST(ClassifyGpu, a_display_is_no_stranger) {
  Gpu gpu = idle();
  gpu.memory_used = mib(600);
  gpu.processes = {process(ProcessKind::graphics, mib(590))};
  EXPECT_EQ(classify(gpu).state, GpuState::free);
}

TEST(ClassifyGpu, memory_that_nobody_accounts_for_is_a_stranger) {
  Gpu gpu = idle();
  gpu.memory_used = gib(9);
  EXPECT_EQ(classify(gpu).state, GpuState::stranger);
  EXPECT_TRUE(has_reason(gpu, {"9 GiB", "driver"})) << classify(gpu).reason;
  // A display whose memory is unknown accounts for at most 2 GiB.
  gpu.processes = {process(ProcessKind::graphics, std::nullopt)};
  EXPECT_EQ(classify(gpu).state, GpuState::stranger);
  gpu.memory_used = gib(2);
  EXPECT_EQ(classify(gpu).state, GpuState::free);
}

TEST(ClassifyGpu, what_the_driver_reserves_is_no_stranger) {
  Gpu gpu = idle();
  gpu.memory_used = mib(912);
  EXPECT_EQ(classify(gpu).state, GpuState::stranger);
  gpu.memory_used_counts_reserved = true;
  EXPECT_EQ(classify(gpu).state, GpuState::free);
}

TEST(ClassifyGpu, memory_that_the_driver_does_not_tell_does_not_block) {
  Gpu gpu;  // unified memory: the driver reports only the list of processes
  EXPECT_EQ(classify(gpu).state, GpuState::free);
}

TEST(ClassifyGpu, a_gpu_that_cannot_be_read_is_not_free) {
  Gpu gpu = idle();
  gpu.health = Health::unreadable;
  EXPECT_EQ(classify(gpu).state, GpuState::unknown);
  gpu.health = Health::lost;
  EXPECT_EQ(classify(gpu).state, GpuState::lost);
}

TEST(ClassifyGpu, a_drained_gpu_says_by_whom_and_why) {
  Gpu gpu = idle();
  gpu.uuid = "GPU-1";
  const Drain drain{"GPU-1", 0, "its fan is broken", {}};
  const auto classify_drained = [&] {
    return berth::classify(make_host_view({"", {gpu}}, {}, {drain}).gpus.front());
  };
  EXPECT_EQ(classify_drained().state, GpuState::drained);
  EXPECT_TRUE(contains_all(classify_drained().reason, {"root", "its fan is broken"}));
  gpu.health = Health::lost;
  gpu.problem = "the driver has lost it";
  EXPECT_EQ(classify_drained().state, GpuState::lost);
  EXPECT_TRUE(contains_all(classify_drained().reason, {gpu.problem, "root", "its fan is broken"}));
}

TEST(ClassifyGpu, a_lease_inside_another_counts_once_that_has_ended) {
  Gpu gpu = idle();
  gpu.uuid = "GPU-1";
  Record outer;
  outer.id = "aaaaaaaa";
  outer.uuids = {"GPU-1"};
  Record inner = outer;
  inner.id = "bbbbbbbb";
  inner.parent_lease = outer.id;
  using Ids = std::vector<std::string>;
  EXPECT_EQ(make_host_view({"", {gpu}}, {outer, inner}, {}).gpus.front().leases, Ids{"aaaaaaaa"});
  EXPECT_EQ(make_host_view({"", {gpu}}, {inner}, {}).gpus.front().leases, Ids{"bbbbbbbb"});
}

TEST(ClassifyGpu, a_gpu_that_nobody_may_use_is_drained) {
  Gpu gpu = idle();
  gpu.compute_mode = ComputeMode::prohibited;
  EXPECT_EQ(classify(gpu).state, GpuState::drained);
  gpu.compute_mode = ComputeMode::exclusive_process;
  EXPECT_EQ(classify(gpu).state, GpuState::free);
  gpu.mig_without_instances = true;
  EXPECT_EQ(classify(gpu).state, GpuState::drained);
}

}  // namespace
}  // namespace berth
