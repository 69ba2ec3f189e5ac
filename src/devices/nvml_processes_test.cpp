// Tests of nvml_processes.h with the process lists of old and new drivers.
#include "devices/nvml_processes.h"

#include <cstring>
#include <gtest/gtest.h>

namespace berth::nvml {
namespace {

// One process list of a fake driver, with entries of a configurable size.
struct FakeList {
  Return answer = success;
  std::vector<ProcessInfoV1> entries;
  std::size_t stride = sizeof(ProcessInfoV2);
  int calls = 0;
};
FakeList compute;
FakeList graphics;
FakeList mps;

Return answer_from(FakeList& list, unsigned* count, void* infos) {
  ++list.calls;
  if (list.answer != success) return list.answer;
  const unsigned room = *count;
  *count = static_cast<unsigned>(list.entries.size());
  if (room < *count) return insufficient_size;
  for (std::size_t i = 0; i < list.entries.size(); ++i) {
    auto* entry = static_cast<unsigned char*>(infos) + i * list.stride;
    std::memset(entry, 0xEE, list.stride);
    std::memcpy(entry, &list.entries[i], sizeof(ProcessInfoV1));
  }
  return success;
}
Return compute_list(Device, unsigned* count, void* infos) {
  return answer_from(compute, count, infos);
}
Return graphics_list(Device, unsigned* count, void* infos) {
  return answer_from(graphics, count, infos);
}
Return mps_list(Device, unsigned* count, void* infos) {
  return answer_from(mps, count, infos);
}
Return missing_list(Device, unsigned*, void*) {
  return function_not_found;
}

class ProcessLists : public testing::Test {
 protected:
  ProcessLists() {
    compute = graphics = mps = FakeList{};
    api.compute_processes[2] = compute_list;
    api.graphics_processes[2] = graphics_list;
    api.mps_processes[2] = mps_list;
  }
  Api api{};
};

TEST_F(ProcessLists, are_merged_by_pid) {
  compute.entries = {{7, mib(100).count}, {9, mib(50).count}};
  graphics.entries = {{7, mib(120).count}, {3, mib(10).count}};
  mps.entries = {{3, mib(30).count}};
  const auto processes = read_processes(api, nullptr, {}).processes;
  ASSERT_EQ(processes.size(), 3U);
  EXPECT_EQ(processes.at(0).pid, 3);
  EXPECT_EQ(processes.at(0).kind, ProcessKind::compute) << "an MPS client computes";
  EXPECT_EQ(processes.at(0).memory, mib(30));
  EXPECT_EQ(processes.at(1).pid, 7);
  EXPECT_EQ(processes.at(1).kind, ProcessKind::compute);
  EXPECT_EQ(processes.at(1).memory, mib(120)) << "the larger figure, not the sum";
  EXPECT_EQ(processes.at(2).memory, mib(50));
}

TEST_F(ProcessLists, unknown_memory_is_absent_not_huge) {
  compute.entries = {{7, kMemoryNotAvailable}};
  EXPECT_EQ(read_processes(api, nullptr, {}).processes.at(0).memory, std::nullopt);
  graphics.entries = {{7, mib(1).count}};
  EXPECT_EQ(read_processes(api, nullptr, {}).processes.at(0).memory, mib(1));
}

TEST_F(ProcessLists, longer_than_expected_are_read_whole) {
  for (unsigned pid = 1; pid <= 500; ++pid) compute.entries.push_back({pid, pid});
  const auto processes = read_processes(api, nullptr, {}).processes;
  ASSERT_EQ(processes.size(), 500U);
  EXPECT_EQ(processes.back().memory, Bytes{500});
  EXPECT_EQ(compute.calls, 2);
}

TEST_F(ProcessLists, fall_back_to_the_version_that_the_driver_has) {
  api.compute_processes[2] = missing_list;  // the symbol exists, but returns function_not_found
  api.compute_processes[1] = nullptr;       // the symbol does not exist
  api.compute_processes[0] = compute_list;
  compute.stride = sizeof(ProcessInfoV1);
  compute.entries = {{7, 70}, {8, 80}};
  const auto processes = read_processes(api, nullptr, {}).processes;
  ASSERT_EQ(processes.size(), 2U);
  EXPECT_EQ(processes.at(1).memory, Bytes{80});
}

TEST_F(ProcessLists, of_the_32_byte_drivers_are_read_right) {
  compute.stride = graphics.stride = mps.stride = sizeof(ProcessDetail);
  compute.entries = {{7, 70}, {8, 80}};
  const auto processes = read_processes(api, nullptr, detect_list_layout("535.54.03")).processes;
  EXPECT_EQ(processes.at(1).pid, 8);
  EXPECT_EQ(processes.at(1).memory, Bytes{80});
}

TEST_F(ProcessLists, that_cannot_be_read_are_not_taken_for_empty) {
  compute.answer = not_supported;
  EXPECT_EQ(read_processes(api, nullptr, {}).compute, not_supported);
  compute.answer = success;
  graphics.answer = not_supported;  // as on many cards; counts as an empty list
  EXPECT_EQ(read_processes(api, nullptr, {}).optional_lists, success);
  compute.entries = {{7, 70}};
  mps.answer = no_permission;
  const auto result = read_processes(api, nullptr, {});
  EXPECT_EQ(result.compute, success);
  EXPECT_EQ(result.optional_lists, no_permission);
  EXPECT_EQ(result.processes.size(), 1U) << "what could be read is there";
}

TEST(ListLayout, follows_the_driver_version) {
  constexpr std::size_t wide = sizeof(ProcessDetail);
  constexpr std::size_t narrow = sizeof(ProcessInfoV2);
  EXPECT_EQ(detect_list_layout("535.43.02").v3_stride, wide);
  EXPECT_EQ(detect_list_layout("535.86.10").v3_stride, wide);
  EXPECT_EQ(detect_list_layout("535.87").v3_stride, narrow);
  EXPECT_EQ(detect_list_layout("535.104.05").v3_stride, narrow);
  EXPECT_EQ(detect_list_layout("535.42").v3_stride, narrow);
  EXPECT_EQ(detect_list_layout("550.54.14").v3_stride, narrow);
  EXPECT_EQ(detect_list_layout("").v3_stride, narrow);
  EXPECT_EQ(detect_list_layout("535").v3_stride, narrow);
  EXPECT_EQ(detect_list_layout("nonsense").v3_stride, narrow);
}

}  // namespace
}  // namespace berth::nvml
