// Tests of the simulated NVML through its exported functions: sessions, devices, instances,
// topology, events, faults.
#include <chrono>
#include <thread>

#include "base/quantity.h"
#include "devices/nvml_abi.h"
#include "sim/test_support.h"

namespace berth::sim {
namespace {

class NvmlTest : public ServerTest {};

TEST_F(NvmlTest, SessionsAreCounted) {
  on("2x8GiB", [] {
    const Library nvml = nvml_library();
    unsigned count = 0;
    EXPECT_EQ(nvml.call("nvmlDeviceGetCount_v2", &count), nvml::uninitialized);
    EXPECT_EQ(nvml.call("nvmlShutdown"), nvml::uninitialized);
    EXPECT_EQ(nvml.call("nvmlInit_v2"), 0);
    EXPECT_EQ(nvml.call("nvmlInitWithFlags", 0U), 0);
    EXPECT_EQ(nvml.call("nvmlShutdown"), 0);
    EXPECT_EQ(nvml.call("nvmlDeviceGetCount_v2", &count), 0);
    EXPECT_EQ(count, 2U);
    EXPECT_EQ(nvml.call("nvmlShutdown"), 0);
    EXPECT_EQ(nvml.call("nvmlDeviceGetCount_v2", &count), nvml::uninitialized);
  });
}

TEST_F(NvmlTest, WithoutAServerThereIsNoDriver) {
  in_child([] {
    ::unsetenv("BERTH_SIM");
    const Library nvml = nvml_library();
    EXPECT_EQ(nvml.call("nvmlInit_v2"), nvml::driver_not_loaded);
    EXPECT_EQ(nvml.call<const char*>("berth_sim_problem"), nullptr);
  });
}

TEST_F(NvmlTest, ProblemsAreTold) {
  on("4xbad", [] {
    const Library nvml = nvml_library();
    EXPECT_EQ(nvml.call("nvmlInit_v2"), nvml::unknown);
    EXPECT_TRUE(
        std::string(nvml.call<const char*>("berth_sim_problem")).starts_with("BERTH_SIM: '4xbad'"));
    EXPECT_EQ(nvml.call("berth_sim_problem_is_usage"), 1);
    ::setenv("BERTH_SIM", "1x1GiB", 1);
    ::setenv("BERTH_SIM_STATE", "/dev/null", 1);
    EXPECT_EQ(nvml.call("nvmlInit_v2"), nvml::unknown);
    EXPECT_NE(nvml.call<const char*>("berth_sim_problem"), nullptr);
    EXPECT_EQ(nvml.call("berth_sim_problem_is_usage"), 0);
  });
}

TEST_F(NvmlTest, AnotherServerInAnotherSession) {
  on("2x8GiB", [&] {
    const Nvml nvml;
    const std::string uuid = nvml.text("nvmlDeviceGetUUID", nvml.card(0));
    EXPECT_EQ(nvml.call("nvmlShutdown"), 0);
    ::setenv("BERTH_SIM", "3x8GiB", 1);
    ::setenv("BERTH_SIM_STATE", folder.file("other").c_str(), 1);
    EXPECT_EQ(nvml.call("nvmlInit_v2"), 0);
    unsigned count = 0;
    EXPECT_EQ(nvml.call("nvmlDeviceGetCount_v2", &count), 0);
    EXPECT_EQ(count, 3U);
    EXPECT_NE(nvml.text("nvmlDeviceGetUUID", nvml.card(0)), uuid);
  });
}

TEST_F(NvmlTest, WhatACardIs) {
  on("4x24GiB", [] {
    const Nvml nvml;
    const nvml::Device card = nvml.card(2);
    EXPECT_EQ(nvml.text("nvmlDeviceGetName", card), "Simulated 24 GiB GPU");
    EXPECT_EQ(nvml.number("nvmlDeviceGetIndex", card), 2U);
    EXPECT_EQ(nvml.number("nvmlDeviceGetMinorNumber", card), 2U);
    const std::string uuid = nvml.text("nvmlDeviceGetUUID", card);
    EXPECT_EQ(uuid.size(), 40U);
    nvml::Device same = nullptr;
    EXPECT_EQ(nvml.call("nvmlDeviceGetHandleByUUID", uuid.c_str(), &same), 0);
    EXPECT_EQ(same, card);
    nvml::PciInfo pci{};
    EXPECT_EQ(nvml.call("nvmlDeviceGetPciInfo_v3", card, &pci), 0);
    EXPECT_STREQ(pci.bus_id, "00000000:03:00.0");
    EXPECT_STREQ(pci.bus_id_legacy, "0000:03:00.0");
    EXPECT_EQ(
        nvml.call("nvmlDeviceGetHandleByPciBusId_v2", static_cast<const char*>(pci.bus_id), &same),
        0);
    EXPECT_EQ(same, card);
    pci.bus_id[0] = 'x';
    EXPECT_EQ(nvml.call("nvmlDeviceGetPciInfo_v2", card, &pci), 0);
    EXPECT_EQ(pci.bus_id[0], 'x') << "the structure of _v2 ends before it";
    std::array<char, 80> version{};
    EXPECT_EQ(nvml.call("nvmlSystemGetDriverVersion", version.data(), 80U), 0);
    EXPECT_STREQ(version.data(), "570.86.15");
    int cuda = 0;
    EXPECT_EQ(nvml.call("nvmlSystemGetCudaDriverVersion_v2", &cuda), 0);
    EXPECT_EQ(cuda, 12080);
  });
}

TEST_F(NvmlTest, WrongArguments) {
  on("1x8GiB", [] {
    const Nvml nvml;
    nvml::Device device = nullptr;
    std::array<char, 96> text{};
    unsigned number = 0;
    EXPECT_EQ(nvml.call("nvmlDeviceGetHandleByIndex_v2", 1U, &device), nvml::invalid_argument);
    EXPECT_EQ(nvml.call("nvmlDeviceGetHandleByUUID", "GPU-none", &device), nvml::not_found);
    EXPECT_EQ(nvml.call("nvmlDeviceGetHandleByPciBusId_v2", "0000:FF:00.0", &device),
              nvml::not_found);
    EXPECT_EQ(nvml.call("nvmlDeviceGetIndex", device, &number), nvml::invalid_argument);
    device = reinterpret_cast<nvml::Device>(&number);
    EXPECT_EQ(nvml.call("nvmlDeviceGetIndex", device, &number), nvml::invalid_argument);
    const nvml::Device card = nvml.card(0);
    EXPECT_EQ(nvml.call("nvmlDeviceGetIndex", card, static_cast<unsigned*>(nullptr)),
              nvml::invalid_argument);
    EXPECT_EQ(nvml.call("nvmlDeviceGetUUID", card, text.data(), 40U), nvml::insufficient_size);
    EXPECT_EQ(nvml.call("nvmlDeviceGetUUID", card, text.data(), 41U), 0);
    EXPECT_EQ(nvml.call("nvmlDeviceGetTemperature", card, 7, &number), nvml::invalid_argument);
    EXPECT_STREQ(nvml.call<const char*>("nvmlErrorString", 15), "GPU is lost");
    EXPECT_STREQ(nvml.call<const char*>("nvmlErrorString", 12345), "Unknown Error");
  });
}

TEST_F(NvmlTest, MemoryInBothForms) {
  on_json(
      R"({"gpus": [{"memory": "8GiB", "reserved_memory": "1GiB"}, {"memory": "8GiB", "unified_memory": true}],
              "strangers": [{"gpu": 0, "memory": "2GiB"}]})",
      [] {
        const Nvml nvml;
        nvml::MemoryV1 first{};
        EXPECT_EQ(nvml.call("nvmlDeviceGetMemoryInfo", nvml.card(0), &first), 0);
        EXPECT_EQ(first.used, gib(3).count);
        EXPECT_EQ(first.free, gib(5).count);
        nvml::MemoryV2 second{};
        second.version = 2;
        EXPECT_EQ(nvml.call("nvmlDeviceGetMemoryInfo_v2", nvml.card(0), &second),
                  nvml::function_not_found);
        second.version = nvml::kMemoryV2Version;
        EXPECT_EQ(nvml.call("nvmlDeviceGetMemoryInfo_v2", nvml.card(0), &second), 0);
        EXPECT_EQ(second.total, gib(8).count);
        EXPECT_EQ(second.reserved, gib(1).count);
        EXPECT_EQ(second.used, gib(2).count);
        EXPECT_EQ(second.free, gib(5).count);
        EXPECT_EQ(nvml.call("nvmlDeviceGetMemoryInfo", nvml.card(1), &first), nvml::not_supported);
        EXPECT_EQ(nvml.call("nvmlDeviceGetMemoryInfo_v2", nvml.card(1), &second),
                  nvml::not_supported);
      });
}

TEST_F(NvmlTest, MeasurementsRiseWithUtilization) {
  on_json(
      R"({"gpus": [{"memory": "8GiB", "count": 2, "idle_power_w": 20, "power_limit_w": 120, "temperature_c": 33}],
              "strangers": [{"gpu": 1, "memory": null, "utilization": 30}, {"gpu": 1, "memory": null, "utilization": 90}]})",
      [] {
        const Nvml nvml;
        EXPECT_EQ(nvml.number("nvmlDeviceGetPowerUsage", nvml.card(0)), 20'000U);
        EXPECT_EQ(nvml.number("nvmlDeviceGetPowerUsage", nvml.card(1)), 120'000U);
        EXPECT_EQ(nvml.number("nvmlDeviceGetPerformanceState", nvml.card(0)), 8U);
        EXPECT_EQ(nvml.number("nvmlDeviceGetPerformanceState", nvml.card(1)), 0U);
        unsigned degrees = 0;
        EXPECT_EQ(nvml.call("nvmlDeviceGetTemperature", nvml.card(0), 0, &degrees), 0);
        EXPECT_EQ(degrees, 33U);
        nvml::Utilization utilization{};
        EXPECT_EQ(nvml.call("nvmlDeviceGetUtilizationRates", nvml.card(1), &utilization), 0);
        EXPECT_EQ(utilization.gpu, 100U);
        nvml::TemperatureV1 temperature{};
        EXPECT_EQ(nvml.call("nvmlDeviceGetTemperatureV", nvml.card(0), &temperature),
                  nvml::argument_version_mismatch);
        temperature.version = nvml::kTemperatureVersion;
        EXPECT_EQ(nvml.call("nvmlDeviceGetTemperatureV", nvml.card(0), &temperature), 0);
        EXPECT_EQ(temperature.temperature, 33);
      });
}

TEST_F(NvmlTest, Instances) {
  on(BERTH_TEST_SERVERS_DIR "/mig.json", [] {
    const Nvml nvml;
    const nvml::Device card = nvml.card(0);
    EXPECT_EQ(nvml.number("nvmlDeviceGetMaxMigDeviceCount", card), 7U);
    EXPECT_EQ(nvml.number("nvmlDeviceGetMaxMigDeviceCount", nvml.card(3)), 0U);
    unsigned current = 0;
    unsigned pending = 0;
    EXPECT_EQ(nvml.call("nvmlDeviceGetMigMode", card, &current, &pending), 0);
    EXPECT_EQ(current, 1U);
    EXPECT_EQ(nvml.call("nvmlDeviceGetMigMode", nvml.card(3), &current, &pending),
              nvml::not_supported);
    nvml::Device instance = nullptr;
    EXPECT_EQ(nvml.call("nvmlDeviceGetMigDeviceHandleByIndex", card, 1U, &instance),
              nvml::not_found);
    EXPECT_EQ(nvml.call("nvmlDeviceGetMigDeviceHandleByIndex", card, 6U, &instance),
              nvml::not_found);
    ASSERT_EQ(nvml.call("nvmlDeviceGetMigDeviceHandleByIndex", card, 2U, &instance), 0);
    EXPECT_EQ(nvml.text("nvmlDeviceGetName", instance), "NVIDIA A100-SXM4-80GB MIG 2g.20gb");
    EXPECT_TRUE(nvml.text("nvmlDeviceGetUUID", instance).starts_with("MIG-"));
    EXPECT_EQ(nvml.number("nvmlDeviceIsMigDeviceHandle", instance), 1U);
    EXPECT_EQ(nvml.number("nvmlDeviceIsMigDeviceHandle", card), 0U);
    EXPECT_EQ(nvml.number("nvmlDeviceGetGpuInstanceId", instance), 3U);
    EXPECT_EQ(nvml.number("nvmlDeviceGetComputeInstanceId", instance), 0U);
    nvml::Device parent = nullptr;
    EXPECT_EQ(nvml.call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", instance, &parent), 0);
    EXPECT_EQ(parent, card);
    nvml::Device found = nullptr;
    EXPECT_EQ(nvml.call("nvmlDeviceGetHandleByUUID",
                        nvml.text("nvmlDeviceGetUUID", instance).c_str(), &found),
              0);
    EXPECT_EQ(found, instance);
    nvml::Utilization rates{};
    EXPECT_EQ(nvml.call("nvmlDeviceGetUtilizationRates", instance, &rates), nvml::not_supported);
    EXPECT_EQ(nvml.call("nvmlDeviceGetUtilizationRates", card, &rates), nvml::not_supported);
    nvml::MemoryV1 memory{};
    EXPECT_EQ(nvml.call("nvmlDeviceGetMemoryInfo", instance, &memory), 0);
    EXPECT_EQ(memory.total, gib(19).count);
    EXPECT_EQ(memory.used, 0U);
  });
}

TEST_F(NvmlTest, Topology) {
  on_json(R"({"gpus": [
      {"memory": "1GiB", "pci_switch": "a", "host_bridge": 0}, {"memory": "1GiB", "pci_switch": "a", "host_bridge": 0},
      {"memory": "1GiB", "pci_switch": "b", "host_bridge": 0}, {"memory": "1GiB", "host_bridge": 0},
      {"memory": "1GiB", "host_bridge": 1}, {"memory": "1GiB", "numa_node": 1}],
    "nvlink": [{"gpus": [0, 1], "links": 4}]})",
          [] {
            const Nvml nvml;
            const std::array expected{nvml::topology_internal, nvml::topology_single,
                                      nvml::topology_multiple, nvml::topology_hostbridge,
                                      nvml::topology_node,     nvml::topology_system};
            for (unsigned i = 0; i < 6; ++i) {
              int level = -1;
              EXPECT_EQ(nvml.call("nvmlDeviceGetTopologyCommonAncestor", nvml.card(0), nvml.card(i),
                                  &level),
                        0);
              EXPECT_EQ(level, expected[i]) << i;
            }
            int active = 0;
            EXPECT_EQ(nvml.call("nvmlDeviceGetNvLinkState", nvml.card(0), 3U, &active), 0);
            EXPECT_EQ(active, 1);
            EXPECT_EQ(nvml.call("nvmlDeviceGetNvLinkState", nvml.card(0), 4U, &active),
                      nvml::invalid_argument);
            EXPECT_EQ(nvml.call("nvmlDeviceGetNvLinkState", nvml.card(2), 0U, &active),
                      nvml::not_supported);
            nvml::PciInfo far{};
            nvml::PciInfo own{};
            EXPECT_EQ(nvml.call("nvmlDeviceGetNvLinkRemotePciInfo_v2", nvml.card(0), 0U, &far), 0);
            EXPECT_EQ(nvml.call("nvmlDeviceGetPciInfo_v3", nvml.card(1), &own), 0);
            EXPECT_STREQ(far.bus_id, own.bus_id);
            std::array<unsigned long, 16> cpus{};
            EXPECT_EQ(nvml.call("nvmlDeviceGetCpuAffinity", nvml.card(0), 16U, cpus.data()), 0);
            EXPECT_NE(cpus[0], 0UL);
            EXPECT_EQ(nvml.call("nvmlDeviceGetCpuAffinity", nvml.card(0), 0U, cpus.data()),
                      nvml::invalid_argument);
          });
}

TEST_F(NvmlTest, ALostCardAnswersNothing) {
  on(BERTH_TEST_SERVERS_DIR "/sick.json", [] {
    const Nvml nvml;
    unsigned number = 0;
    nvml::Device device = nullptr;
    EXPECT_EQ(nvml.call("nvmlDeviceGetCount_v2", &number), 0);
    EXPECT_EQ(number, 6U);
    EXPECT_EQ(nvml.call("nvmlDeviceGetHandleByIndex_v2", 0U, &device), nvml::gpu_is_lost);
    EXPECT_EQ(nvml.call("nvmlDeviceGetPowerUsage", nvml.card(1), &number), nvml::not_supported);
    EXPECT_EQ(nvml.call("nvmlDeviceGetTemperature", nvml.card(2), 0, &number), nvml::unknown);
    EXPECT_EQ(nvml.call("nvmlDeviceGetTemperature", nvml.card(1), 0, &number), 0);
    nvml::MemoryV2 memory{
        .version = nvml::kMemoryV2Version, .total = 0, .reserved = 0, .free = 0, .used = 0};
    EXPECT_EQ(nvml.call("nvmlDeviceGetMemoryInfo_v2", nvml.card(3), &memory), nvml::not_supported);
    EXPECT_EQ(nvml.call("nvmlDeviceGetMemoryInfo_v2", nvml.card(4), &memory), 0);
    EXPECT_EQ(memory.used, gib(31).count);
  });
}

TEST_F(NvmlTest, FaultsOfInit) {
  on_json(R"({"gpus": [{"memory": "1GiB"}], "faults": [{"call": "nvmlInit", "answer": 18}]})", [] {
    const Library nvml = nvml_library();
    EXPECT_EQ(nvml.call("nvmlInit_v2"), nvml::lib_rm_version_mismatch);
    EXPECT_EQ(nvml.call("nvmlInitWithFlags", 0U), nvml::lib_rm_version_mismatch);
    EXPECT_EQ(nvml.call<const char*>("berth_sim_problem"), nullptr);
  });
}

TEST_F(NvmlTest, ADriverThatStartsSlowly) {
  on_json(R"({"gpus": [{"memory": "1GiB"}], "faults": [{"call": "nvmlInit", "delay": "300ms"}]})",
          [] {
            const Library nvml = nvml_library();
            const auto begin = std::chrono::steady_clock::now();
            EXPECT_EQ(nvml.call("nvmlInit_v2"), 0);
            EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(300));
            unsigned count = 0;
            EXPECT_EQ(nvml.call("nvmlDeviceGetCount_v2", &count), 0);
            EXPECT_EQ(count, 1U);
          });
}

TEST_F(NvmlTest, InitCallsOfAllProcessesAreCounted) {
  const auto calls = [](const Library& nvml) {
    return nvml.call<unsigned long long>("berth_sim_init_calls");
  };
  on("1x8GiB", [&] {
    const Library nvml = nvml_library();
    EXPECT_EQ(calls(nvml), 0U);
    EXPECT_EQ(nvml.call("nvmlInit_v2"), 0);
    EXPECT_EQ(nvml.call("nvmlInitWithFlags", 0U), 0);
    EXPECT_EQ(calls(nvml), 2U);
  });
  on_json(R"({"gpus": [{"memory": "1GiB"}], "faults": [{"call": "nvmlInit", "answer": 18}]})", [&] {
    const Library nvml = nvml_library();
    EXPECT_EQ(nvml.call("nvmlInit_v2"), nvml::lib_rm_version_mismatch);
    EXPECT_EQ(calls(nvml), 3U) << "a call that failed counts, too";
    ::unsetenv("BERTH_SIM");
    EXPECT_EQ(calls(nvml), 0U) << "there is no server";
  });
}

TEST_F(NvmlTest, AHangingCallEndsOnlyWithItsProcess) {
  const std::string sim = folder.write(
      "hang.json",
      R"({"gpus": [{"memory": "1GiB"}], "faults": [{"call": "nvmlDeviceGetName", "hang": true}]})");
  Child child([&](const Child::Point& point) {
    use_server(folder, sim);
    const Nvml nvml;
    const nvml::Device card = nvml.card(0);
    point();
    nvml.text("nvmlDeviceGetName", card);
    ADD_FAILURE() << "it returned";
  });
  ASSERT_TRUE(child.wait_for_point());
  child.go_on();
  // The call blocks every signal. Wait until the kernel reports that, then check that SIGTERM does
  // not end the process.
  const std::string status = fmt::format("/proc/{}/status", child.pid());
  const auto blocks_sigterm = [&] {
    std::ifstream file(status);
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("SigBlk:"))
        return (std::stoull(line.substr(7), nullptr, 16) & (1ULL << (SIGTERM - 1))) != 0;
    }
    return false;
  };
  const auto has_ended = [&] {
    siginfo_t how{};
    ::waitid(P_PID, static_cast<id_t>(child.pid()), &how, WEXITED | WNOHANG | WNOWAIT);
    return how.si_pid != 0;
  };
  while (!blocks_sigterm() && !has_ended()) std::this_thread::yield();
  ASSERT_EQ(::kill(child.pid(), SIGTERM), 0);
  EXPECT_FALSE(has_ended());
}

TEST_F(NvmlTest, TheLossOfACardIsAnEvent) {
  on_json(
      R"({"gpus": [{"memory": "1GiB", "count": 2}], "faults": [{"gpu": 1, "lost": true, "after": "800ms"}]})",
      [] {
        const Nvml nvml;
        nvml::EventSet set = nullptr;
        ASSERT_EQ(nvml.call("nvmlEventSetCreate", &set), 0);
        std::uint64_t types = 0;
        EXPECT_EQ(nvml.call("nvmlDeviceGetSupportedEventTypes", nvml.card(1), &types), 0);
        EXPECT_NE(types & nvml::kEventXid, 0U);
        const nvml::Device card = nvml.card(1);
        nvml::EventData event{};
        EXPECT_EQ(nvml.call("nvmlEventSetWait_v2", set, &event, 0U), nvml::timeout);
        ASSERT_EQ(nvml.call("nvmlDeviceRegisterEvents", card, std::uint64_t{8}, set), 0);
        EXPECT_EQ(nvml.call("nvmlDeviceRegisterEvents", card, std::uint64_t{1}, set),
                  nvml::not_supported);
        ASSERT_EQ(nvml.call("nvmlEventSetWait_v2", set, &event, 60'000U), 0);
        EXPECT_EQ(event.device, card);
        EXPECT_EQ(event.event_type, nvml::kEventXid);
        EXPECT_EQ(event.event_data, 79U);
        EXPECT_EQ(nvml.call("nvmlEventSetWait_v2", set, &event, 1U), nvml::timeout) << "told once";
        unsigned index = 0;
        EXPECT_EQ(nvml.call("nvmlDeviceGetIndex", card, &index), nvml::gpu_is_lost);
        EXPECT_EQ(nvml.call("nvmlEventSetFree", set), 0);
        EXPECT_EQ(nvml.call("nvmlEventSetFree", set), nvml::invalid_argument);
        EXPECT_EQ(nvml.call("nvmlEventSetWait_v2", set, &event, 1U), nvml::invalid_argument);
      });
}

TEST_F(NvmlTest, ManyThreads) {
  on("4x24GiB", [] {
    std::vector<std::thread> threads;
    const Library nvml = nvml_library();
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&nvml] {
        for (int round = 0; round < 50; ++round) {
          EXPECT_EQ(nvml.call("nvmlInit_v2"), 0);
          nvml::Device card = nullptr;
          EXPECT_EQ(nvml.call("nvmlDeviceGetHandleByIndex_v2", 3U, &card), 0);
          nvml::MemoryV1 memory{};
          EXPECT_EQ(nvml.call("nvmlDeviceGetMemoryInfo", card, &memory), 0);
          EXPECT_EQ(nvml.call("nvmlShutdown"), 0);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

}  // namespace
}  // namespace berth::sim
