// Tests of the simulated CUDA driver through its exported functions.
#include <thread>

#include "base/quantity.h"
#include "devices/cuda_abi.h"
#include "sim/test_support.h"

namespace berth::sim {
namespace {

class Cuda : public Library {
 public:
  Cuda() : Library(BERTH_TEST_SIM_DIR "/libcuda.so.1") { EXPECT_EQ(call("cuInit", 0U), 0); }
  cuda::Context retain(int device) const {
    cuda::Context context = nullptr;
    EXPECT_EQ(call("cuDevicePrimaryCtxRetain", &context, device), 0);
    return context;
  }
  int allocate(Bytes size, cuda::DevicePointer* pointer) const {
    return call("cuMemAlloc_v2", pointer, static_cast<std::size_t>(size.count));
  }
  std::size_t free_memory() const {
    std::size_t free = 0;
    std::size_t total = 0;
    EXPECT_EQ(call("cuMemGetInfo_v2", &free, &total), 0);
    return free;
  }
};

class CudaTest : public ServerTest {};

TEST_F(CudaTest, Initialisation) {
  on("2x8GiB", [] {
    const Library cuda = cuda_library();
    int count = 0;
    EXPECT_EQ(cuda.call("cuDeviceGetCount", &count), cuda::not_initialized);
    EXPECT_EQ(cuda.call("cuInit", 1U), cuda::invalid_value);
    EXPECT_EQ(cuda.call("cuInit", 0U), 0);
    EXPECT_EQ(cuda.call("cuInit", 0U), 0);
    EXPECT_EQ(cuda.call("cuDeviceGetCount", &count), 0);
    EXPECT_EQ(count, 2);
    ::setenv("CUDA_VISIBLE_DEVICES", "0", 1);
    EXPECT_EQ(cuda.call("cuDeviceGetCount", &count), 0);
    EXPECT_EQ(count, 2) << "too late";
    const char* text = nullptr;
    EXPECT_EQ(cuda.call("cuGetErrorName", 100, &text), 0);
    EXPECT_STREQ(text, "CUDA_ERROR_NO_DEVICE");
    EXPECT_EQ(cuda.call("cuGetErrorString", 12345, &text), cuda::invalid_value);
  });
}

TEST_F(CudaTest, NothingVisible) {
  on("2x8GiB", [] {
    ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
    EXPECT_EQ(cuda_library().call("cuInit", 0U), cuda::no_device);
  });
  in_child([] {
    ::unsetenv("BERTH_SIM");
    EXPECT_EQ(cuda_library().call("cuInit", 0U), cuda::no_device);
  });
  on("2xbad", [] {
    const Library cuda = cuda_library();
    EXPECT_EQ(cuda.call("cuInit", 0U), cuda::unknown);
    EXPECT_NE(cuda.call<const char*>("berth_sim_problem"), nullptr);
    EXPECT_EQ(cuda.call("berth_sim_problem_is_usage"), 1);
  });
}

TEST_F(CudaTest, WhatADeviceIs) {
  on("2x8GiB", [] {
    ::setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    const Cuda cuda;
    std::array<char, 64> text{};
    EXPECT_EQ(cuda.call("cuDeviceGetName", text.data(), 64, 0), 0);
    EXPECT_STREQ(text.data(), "Simulated 8 GiB GPU");
    EXPECT_EQ(cuda.call("cuDeviceGetPCIBusId", text.data(), 64, 0), 0);
    EXPECT_STREQ(text.data(), "0000:02:00.0");
    int bus = 0;
    EXPECT_EQ(cuda.call("cuDeviceGetAttribute", &bus, 33, 0), 0);
    EXPECT_EQ(bus, 2);
    EXPECT_EQ(cuda.call("cuDeviceGetName", text.data(), 64, 1), cuda::invalid_device);
    std::size_t total = 0;
    EXPECT_EQ(cuda.call("cuDeviceTotalMem_v2", &total, 0), 0);
    EXPECT_EQ(total, gib(8).count);
    cuda::Uuid uuid{};
    EXPECT_EQ(cuda.call("cuDeviceGetUuid_v2", &uuid, 0), 0);
    std::string hex;
    for (const char byte : uuid.bytes)
      hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    const Library nvml = nvml_library();
    EXPECT_EQ(nvml.call("nvmlInit_v2"), 0);
    void* card = nullptr;
    EXPECT_EQ(nvml.call("nvmlDeviceGetHandleByIndex_v2", 1U, &card), 0);
    EXPECT_EQ(nvml.call("nvmlDeviceGetUUID", card, text.data(), 64U), 0);
    std::string digits(text.data() + 4);
    std::erase(digits, '-');
    EXPECT_EQ(hex, digits);
  });
}

TEST_F(CudaTest, MemoryNeedsACurrentContext) {
  on_json(R"({"gpus": [{"memory": "8GiB", "reserved_memory": "1GiB", "context_memory": "1GiB"}]})",
          [] {
            const Cuda cuda;
            cuda::DevicePointer pointer = 0;
            EXPECT_EQ(cuda.allocate(gib(1), &pointer), cuda::invalid_context);
            cuda::Context context = cuda.retain(0);
            EXPECT_EQ(cuda.allocate(gib(1), &pointer), cuda::invalid_context)
                << "retained is not current";
            ASSERT_EQ(cuda.call("cuCtxPushCurrent_v2", context), 0);
            EXPECT_EQ(cuda.free_memory(), gib(6).count);
            EXPECT_EQ(cuda.allocate({gib(6).count + 1}, &pointer), cuda::out_of_memory);
            EXPECT_EQ(cuda.allocate(gib(6), &pointer), 0);
            EXPECT_EQ(cuda.free_memory(), 0U);
            cuda::DevicePointer more = 0;
            EXPECT_EQ(cuda.allocate({1}, &more), cuda::out_of_memory);
            EXPECT_EQ(cuda.allocate({0}, &more), cuda::invalid_value);
            EXPECT_EQ(cuda.call("cuMemFree_v2", pointer), 0);
            EXPECT_EQ(cuda.call("cuMemFree_v2", pointer), cuda::invalid_value);
            EXPECT_EQ(cuda.call("cuMemFree_v2", cuda::DevicePointer{0}), 0);
            EXPECT_EQ(cuda.allocate(gib(2), &pointer), 0);
            cuda::Context popped = nullptr;
            EXPECT_EQ(cuda.call("cuCtxPopCurrent_v2", &popped), 0);
            EXPECT_EQ(popped, context);
            EXPECT_EQ(cuda.retain(0), context);
            EXPECT_EQ(cuda.call("cuDevicePrimaryCtxRelease_v2", 0), 0);
            unsigned flags = 0;
            int active = 0;
            EXPECT_EQ(cuda.call("cuDevicePrimaryCtxGetState", 0, &flags, &active), 0);
            EXPECT_EQ(active, 1);
            EXPECT_EQ(cuda.call("cuDevicePrimaryCtxRelease_v2", 0), 0);
            EXPECT_EQ(cuda.call("cuDevicePrimaryCtxRelease_v2", 0), cuda::invalid_context);
            EXPECT_EQ(cuda.call("cuCtxPushCurrent_v2", context), cuda::invalid_context);
            EXPECT_EQ(cuda.call("cuMemFree_v2", pointer), cuda::invalid_value)
                << "gone with its context";
            ASSERT_EQ(cuda.call("cuCtxCreate_v2", &context, 0U, 0), 0);
            EXPECT_EQ(cuda.free_memory(), gib(6).count) << "and a created one is current";
            EXPECT_EQ(cuda.call("cuCtxDestroy_v2", context), 0);
            EXPECT_EQ(cuda.call("cuCtxSynchronize"), cuda::invalid_context);
          });
}

TEST_F(CudaTest, AChildOfForkMustStartAnew) {
  on("1x8GiB", [] {
    const Cuda cuda;
    cuda.retain(0);
    in_child([&] {
      int count = 0;
      EXPECT_EQ(cuda.call("cuDeviceGetCount", &count), cuda::not_initialized);
      EXPECT_EQ(cuda.call("cuInit", 0U), cuda::not_initialized);
      EXPECT_EQ(cuda.call("berth_sim_set_utilization", 0, 5U), cuda::not_initialized);
    });
    int count = 0;
    EXPECT_EQ(cuda.call("cuDeviceGetCount", &count), 0);
  });
}

TEST_F(CudaTest, ComputeModes) {
  const std::string sim = folder.write("modes.json", R"({"gpus": [
    {"memory": "8GiB", "compute_mode": "exclusive-process"}, {"memory": "8GiB", "compute_mode": "prohibited"},
    {"memory": "8GiB", "compute_mode": "exclusive-process"}], "strangers": [{"gpu": 2, "memory": null}]})");
  use_server(folder, sim);
  Child first([&](const Child::Point& point) {
    Cuda().retain(0);
    point();
  });
  ASSERT_TRUE(first.wait_for_point());
  in_child([] {
    const Cuda cuda;
    cuda::Context context = nullptr;
    for (const int device : {0, 1, 2}) {
      EXPECT_EQ(cuda.call("cuDevicePrimaryCtxRetain", &context, device), cuda::device_unavailable)
          << device;
    }
  });
  first.kill();
  in_child([] { Cuda().retain(0); });
}

TEST_F(CudaTest, AnInstanceHasItsOwnMemory) {
  on(BERTH_TEST_SERVERS_DIR "/mig.json", [] {
    ::setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
    ::setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    const Cuda cuda;
    EXPECT_EQ(cuda.call("cuCtxPushCurrent_v2", cuda.retain(0)), 0);
    EXPECT_EQ(cuda.free_memory(), gib(26).count) << "38 less the 12 of the stranger";
    std::array<char, 64> name{};
    EXPECT_EQ(cuda.call("cuDeviceGetName", name.data(), 64, 0), 0);
    EXPECT_STREQ(name.data(), "NVIDIA A100-SXM4-80GB MIG 3g.40gb");
  });
}

TEST_F(CudaTest, FaultsAndLoss) {
  on_json(R"({"gpus": [{"memory": "8GiB", "count": 3}], "faults": [
    {"gpu": 0, "lost": true}, {"call": "cuMemAlloc", "gpu": 2, "answer": "unknown"}]})",
          [] {
            const Cuda cuda;
            int count = 0;
            EXPECT_EQ(cuda.call("cuDeviceGetCount", &count), 0);
            EXPECT_EQ(count, 2);
            cuda::DevicePointer pointer = 0;
            EXPECT_EQ(cuda.call("cuCtxPushCurrent_v2", cuda.retain(0)), 0);
            EXPECT_EQ(cuda.allocate(gib(1), &pointer), 0);
            EXPECT_EQ(cuda.call("cuCtxPushCurrent_v2", cuda.retain(1)), 0);
            EXPECT_EQ(cuda.allocate(gib(1), &pointer), cuda::unknown);
          });
}

TEST_F(CudaTest, ThreadsHaveTheirOwnCurrentContext) {
  on("1x1GiB", [] {
    const Cuda cuda;
    cuda::Context context = cuda.retain(0);
    EXPECT_EQ(cuda.call("cuCtxPushCurrent_v2", context), 0);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&cuda, context] {
        cuda::DevicePointer pointer = 0;
        EXPECT_EQ(cuda.allocate({1}, &pointer), cuda::invalid_context);
        EXPECT_EQ(cuda.call("cuCtxSetCurrent", context), 0);
        for (int round = 0; round < 100; ++round) {
          EXPECT_EQ(cuda.allocate(mib(1), &pointer), 0);
          EXPECT_EQ(cuda.call("cuMemFree_v2", pointer), 0);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(cuda.free_memory(), gib(1).count);
  });
}

}  // namespace
}  // namespace berth::sim
