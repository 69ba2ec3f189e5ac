// Tests of the process lists of the simulated NVML, in all versions, with real processes.
#include <cstring>

#include "base/quantity.h"
#include "devices/cuda_abi.h"
#include "devices/nvml_abi.h"
#include "sim/test_support.h"

namespace berth::sim {
namespace {

constexpr std::string_view kStrangers = R"(
  "strangers": [{"gpu": 0, "pid": 5000011, "memory": "2GiB", "name": "/usr/bin/python3"},
                {"gpu": 0, "pid": 5000012, "memory": null, "utilization": 20},
                {"gpu": 0, "pid": 5000013, "memory": "1GiB", "hidden": true},
                {"gpu": 0, "pid": 5000014, "memory": "1GiB", "type": "graphics"},
                {"gpu": 0, "pid": 5000015, "memory": "1GiB", "type": "mps"},
                {"gpu": 0, "pid": 5000016, "memory": "1GiB", "after": "10d"}])";

class Lists : public testing::Test {
 protected:
  TestFolder folder;

  void on_driver(std::string_view version,
                 const std::function<void(const Library&, nvml::Device)>& body) {
    const std::string path = folder.write(
        "server.json",
        fmt::format(R"({{"driver_version": "{}", "gpus": [{{"memory": "24GiB"}}], {}}})", version,
                    kStrangers));
    in_child([&] {
      use_server(folder, path);
      const Library nvml = nvml_library();
      ASSERT_EQ(nvml.call("nvmlInit_v2"), 0);
      nvml::Device card = nullptr;
      ASSERT_EQ(nvml.call("nvmlDeviceGetHandleByIndex_v2", 0U, &card), 0);
      body(nvml, card);
    });
  }
};

template <class Record>
void expect_two(const Library& nvml, nvml::Device card, const char* name) {
  unsigned count = 0;
  EXPECT_EQ(nvml.call(name, card, &count, static_cast<Record*>(nullptr)), nvml::insufficient_size)
      << name;
  EXPECT_EQ(count, 2U);
  count = 1;
  std::array<Record, 3> records{};
  EXPECT_EQ(nvml.call(name, card, &count, records.data()), nvml::insufficient_size);
  count = 3;
  EXPECT_EQ(nvml.call(name, card, &count, records.data()), 0);
  EXPECT_EQ(count, 2U);
  EXPECT_EQ(records[0].pid, 5000011U);
  EXPECT_EQ(records[0].used_memory, gib(2).count);
  EXPECT_EQ(records[1].pid, 5000012U);
  EXPECT_EQ(records[1].used_memory, nvml::kMemoryNotAvailable);
  EXPECT_EQ(records[2].pid, 0U);
  if constexpr (sizeof(Record) > 16) {
    EXPECT_EQ(records[0].gpu_instance, nvml::kNoInstance);
  }
}

constexpr const char* kFirstVersion = "nvmlDeviceGetComputeRunningProcesses";
constexpr const char* kSecond = "nvmlDeviceGetComputeRunningProcesses_v2";
constexpr const char* kThird = "nvmlDeviceGetComputeRunningProcesses_v3";

int answer_of(const Library& nvml, nvml::Device card, const char* name) {
  unsigned count = 0;
  return nvml.call(name, card, &count, static_cast<void*>(nullptr));
}

TEST_F(Lists, OfANewDriver) {
  on_driver("570.86.15", [](const Library& nvml, nvml::Device card) {
    expect_two<nvml::ProcessInfoV1>(nvml, card, kFirstVersion);
    expect_two<nvml::ProcessInfoV2>(nvml, card, kSecond);
    expect_two<nvml::ProcessInfoV2>(nvml, card, kThird);
  });
}

TEST_F(Lists, OfOldDrivers) {
  on_driver("440.33.01", [](const Library& nvml, nvml::Device card) {
    expect_two<nvml::ProcessInfoV1>(nvml, card, kFirstVersion);
    EXPECT_EQ(answer_of(nvml, card, kSecond), nvml::function_not_found);
    EXPECT_EQ(answer_of(nvml, card, kThird), nvml::function_not_found);
    nvml::MemoryV2 memory{};
    memory.version = nvml::kMemoryV2Version;
    EXPECT_EQ(nvml.call("nvmlDeviceGetMemoryInfo_v2", card, &memory), nvml::function_not_found);
    unsigned count = 0;
    EXPECT_EQ(nvml.call("nvmlDeviceGetMaxMigDeviceCount", card, &count), nvml::function_not_found);
  });
  on_driver("470.82.01", [](const Library& nvml, nvml::Device card) {
    expect_two<nvml::ProcessInfoV2>(nvml, card, kSecond);
    EXPECT_EQ(answer_of(nvml, card, kThird), nvml::function_not_found);
  });
}

TEST_F(Lists, OfTheDriversThatChangedTheirMind) {
  on_driver("535.54.03", [](const Library& nvml, nvml::Device card) {
    expect_two<nvml::ProcessDetail>(nvml, card, kThird);
    expect_two<nvml::ProcessInfoV2>(nvml, card, kSecond);
  });
  on_driver("535.98", [](const Library& nvml, nvml::Device card) {
    EXPECT_EQ(answer_of(nvml, card, kThird), nvml::function_not_found);
    expect_two<nvml::ProcessInfoV2>(nvml, card, kSecond);
  });
  on_driver("535.104.05", [](const Library& nvml, nvml::Device card) {
    expect_two<nvml::ProcessInfoV2>(nvml, card, kThird);
  });
}

TEST_F(Lists, OtherKinds) {
  on_driver("570.86.15", [](const Library& nvml, nvml::Device card) {
    for (const auto& [name, pid] :
         {std::pair{"nvmlDeviceGetGraphicsRunningProcesses_v3", 5000014U},
          std::pair{"nvmlDeviceGetMPSComputeRunningProcesses_v3", 5000015U}}) {
      unsigned count = 4;
      std::array<nvml::ProcessInfoV2, 4> records{};
      EXPECT_EQ(nvml.call(name, card, &count, records.data()), 0);
      ASSERT_EQ(count, 1U) << name;
      EXPECT_EQ(records[0].pid, pid);
    }
    std::array<nvml::ProcessDetail, 4> details{};
    nvml::ProcessDetailList list{1, 0, 4, details.data()};
    EXPECT_EQ(nvml.call("nvmlDeviceGetRunningProcessDetailList", card, &list),
              nvml::argument_version_mismatch);
    list.version = nvml::kProcessDetailListVersion;
    EXPECT_EQ(nvml.call("nvmlDeviceGetRunningProcessDetailList", card, &list), 0);
    EXPECT_EQ(list.count, 2U);
    EXPECT_EQ(details[1].pid, 5000012U);
    std::array<nvml::ProcessUtilizationSample, 4> samples{};
    unsigned count = 0;
    EXPECT_EQ(
        nvml.call("nvmlDeviceGetProcessUtilization", card,
                  static_cast<nvml::ProcessUtilizationSample*>(nullptr), &count, std::uint64_t{0}),
        nvml::insufficient_size);
    EXPECT_EQ(count, 4U);
    EXPECT_EQ(nvml.call("nvmlDeviceGetProcessUtilization", card, samples.data(), &count,
                        std::uint64_t{0}),
              0);
    EXPECT_EQ(samples[1].pid, 5000012U);
    EXPECT_EQ(samples[1].sm, 20U);
  });
}

TEST_F(Lists, NamesOfProcesses) {
  on_driver("570.86.15", [](const Library& nvml, nvml::Device) {
    std::array<char, 256> name{};
    EXPECT_EQ(nvml.call("nvmlSystemGetProcessName", 5000011U, name.data(), 256U), 0);
    EXPECT_STREQ(name.data(), "/usr/bin/python3");
    EXPECT_EQ(
        nvml.call("nvmlSystemGetProcessName", static_cast<unsigned>(::getpid()), name.data(), 256U),
        0);
    EXPECT_NE(std::strstr(name.data(), "berth_sim_test"), nullptr) << name.data();
    EXPECT_EQ(nvml.call("nvmlSystemGetProcessName", 5000099U, name.data(), 256U), nvml::not_found);
    EXPECT_EQ(nvml.call("nvmlSystemGetProcessName", 5000011U, name.data(), 3U),
              nvml::insufficient_size);
  });
}

// A process is listed, with its memory, from its first context until it is killed.
TEST(Processes, AreThereForAsLongAsTheyLive) {
  const TestFolder folder;
  const std::string sim = folder.write(
      "server.json", R"({"gpus": [{"memory": "24GiB", "context_memory": "256MiB", "count": 2}]})");
  use_server(folder, sim);
  const Library nvml = nvml_library();
  ASSERT_EQ(nvml.call("nvmlInit_v2"), 0);
  nvml::Device card = nullptr;
  ASSERT_EQ(nvml.call("nvmlDeviceGetHandleByIndex_v2", 1U, &card), 0);
  std::array<nvml::ProcessInfoV2, 8> records{};
  const auto listed = [&] {
    unsigned count = 8;
    EXPECT_EQ(nvml.call(kThird, card, &count, records.data()), 0);
    return count;
  };
  Child child([&](const Child::Point& point) {
    ::setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    const Library cuda = cuda_library();
    EXPECT_EQ(cuda.call("cuInit", 0U), 0);
    point();
    cuda::Context context = nullptr;
    EXPECT_EQ(cuda.call("cuDevicePrimaryCtxRetain", &context, 0), 0);
    EXPECT_EQ(cuda.call("cuCtxPushCurrent_v2", context), 0);
    cuda::DevicePointer pointer = 0;
    EXPECT_EQ(cuda.call("cuMemAlloc_v2", &pointer, static_cast<std::size_t>(gib(3).count)), 0);
    EXPECT_EQ(cuda.call("berth_sim_set_utilization", 0, 60U), 0);
    const auto lists = [&] { return cuda.call<unsigned long long>("berth_sim_process_lists", 0); };
    EXPECT_EQ(lists(), 1U);
    point();
    EXPECT_EQ(lists(), 2U);
    point();
  });
  ASSERT_TRUE(child.wait_for_point());
  EXPECT_EQ(listed(), 0U);
  child.go_on();
  ASSERT_TRUE(child.wait_for_point());
  ASSERT_EQ(listed(), 1U);
  EXPECT_EQ(records[0].pid, static_cast<unsigned>(child.pid()));
  EXPECT_EQ(records[0].used_memory, gib(3).count + mib(256).count);
  nvml::Utilization rates{};
  EXPECT_EQ(nvml.call("nvmlDeviceGetUtilizationRates", card, &rates), 0);
  EXPECT_EQ(rates.gpu, 60U);
  child.go_on();
  ASSERT_TRUE(child.wait_for_point());
  child.kill();
  EXPECT_EQ(listed(), 0U);
  EXPECT_EQ(nvml.call("nvmlDeviceGetUtilizationRates", card, &rates), 0);
  EXPECT_EQ(rates.gpu, 0U);
  EXPECT_EQ(nvml.call("nvmlShutdown"), 0);
}

TEST(Processes, OnAnInstanceShowOnItsCardToo) {
  const TestFolder folder;
  use_server(folder, BERTH_TEST_SERVERS_DIR "/mig.json");
  in_child([] {
    const Library nvml = nvml_library();
    ASSERT_EQ(nvml.call("nvmlInit_v2"), 0);
    nvml::Device card = nullptr;
    nvml::Device instance = nullptr;
    ASSERT_EQ(nvml.call("nvmlDeviceGetHandleByIndex_v2", 1U, &card), 0);
    for (const unsigned index : {0U, 1U}) {
      ASSERT_EQ(nvml.call("nvmlDeviceGetMigDeviceHandleByIndex", card, index, &instance), 0);
      std::array<nvml::ProcessInfoV2, 4> records{};
      unsigned count = 4;
      EXPECT_EQ(nvml.call(kThird, instance, &count, records.data()), 0);
      EXPECT_EQ(count, index == 0 ? 1U : 0U);
    }
    std::array<nvml::ProcessInfoV2, 4> records{};
    unsigned count = 4;
    EXPECT_EQ(nvml.call(kThird, card, &count, records.data()), 0);
    ASSERT_EQ(count, 1U);
    EXPECT_EQ(records[0].gpu_instance, 1U);
    EXPECT_EQ(records[0].compute_instance, 0U);
    nvml::MemoryV1 memory{};
    EXPECT_EQ(nvml.call("nvmlDeviceGetMemoryInfo", card, &memory), 0);
    EXPECT_EQ(memory.used, gib(12).count + mib(904).count);
  });
}

}  // namespace
}  // namespace berth::sim
