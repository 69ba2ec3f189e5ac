// The part of NVML's binary interface that Berth uses: codes, structures, version numbers.
//
// Written from the documented layouts; tests/test_abi.py compares every size, offset and code here
// with NVIDIA's own header where a registry has it. Both sides use this file: the client in
// devices/nvml_*.cpp and the simulated driver in sim/.
#pragma once

#include <cstddef>
#include <cstdint>

namespace berth::nvml {

// Handles of the driver. Clients do not access their contents.
struct OpaqueDevice;
using Device = OpaqueDevice*;
struct OpaqueEventSet;
using EventSet = OpaqueEventSet*;

enum Return : int {
  success = 0,
  uninitialized = 1,
  invalid_argument = 2,
  not_supported = 3,
  no_permission = 4,
  not_found = 6,
  insufficient_size = 7,
  driver_not_loaded = 9,
  timeout = 10,
  library_not_found = 12,
  function_not_found = 13,
  gpu_is_lost = 15,
  reset_required = 16,
  operating_system = 17,
  lib_rm_version_mismatch = 18,
  in_use = 19,
  memory = 20,
  no_data = 21,
  argument_version_mismatch = 25,
  gpu_not_found = 28,
  invalid_state = 29,
  unknown = 999,
};

// In the process lists: an amount of memory that the driver does not know.
constexpr std::uint64_t kMemoryNotAvailable = ~std::uint64_t{0};
// In the process lists: the process does not run in a MIG instance.
constexpr std::uint32_t kNoInstance = 0xFFFFFFFF;
constexpr unsigned kMaxNvLinks = 36;
constexpr int kPerformanceStateUnknown = 32;

enum ComputeModeCode : int {
  compute_default = 0,
  compute_prohibited = 2,
  compute_exclusive_process = 3
};

// The closest component that the PCIe paths of two GPUs share.
enum TopologyLevel : int {
  topology_internal = 0,     // the same board
  topology_single = 10,      // one PCIe switch
  topology_multiple = 20,    // several PCIe switches
  topology_hostbridge = 30,  // one PCIe host bridge
  topology_node = 40,        // one NUMA node
  topology_system = 50,      // the link between NUMA nodes
};

struct PciInfo {
  char bus_id_legacy[16];  // 0000:3B:00.0
  std::uint32_t domain;
  std::uint32_t bus;
  std::uint32_t device;
  std::uint32_t pci_device_id;
  std::uint32_t pci_subsystem_id;
  char bus_id[32];  // 00000000:3B:00.0
};
static_assert(sizeof(PciInfo) == 68 && offsetof(PciInfo, bus_id) == 36);

struct MemoryV1 {
  std::uint64_t total;
  std::uint64_t free;
  std::uint64_t used;  // including the driver's reserved memory
};
static_assert(sizeof(MemoryV1) == 24);

struct MemoryV2 {
  std::uint32_t version;  // kMemoryV2Version; otherwise the driver returns function_not_found
  std::uint64_t total;
  std::uint64_t reserved;
  std::uint64_t free;
  std::uint64_t used;  // without the driver's reserved memory
};
static_assert(sizeof(MemoryV2) == 40 && offsetof(MemoryV2, total) == 8);
constexpr std::uint32_t kMemoryV2Version = 0x02000028;

struct Utilization {
  std::uint32_t gpu;
  std::uint32_t memory;
};
static_assert(sizeof(Utilization) == 8);

struct ProcessInfoV1 {
  std::uint32_t pid;
  std::uint64_t used_memory;
};
static_assert(sizeof(ProcessInfoV1) == 16);

struct ProcessInfoV2 {  // for the list functions _v2 and _v3
  std::uint32_t pid;
  std::uint64_t used_memory;
  std::uint32_t gpu_instance;
  std::uint32_t compute_instance;
};
static_assert(sizeof(ProcessInfoV2) == 24);

struct ProcessDetail {  // drivers 535.43 to 535.86 also use it for _v3, against the documentation
  std::uint32_t pid;
  std::uint64_t used_memory;
  std::uint32_t gpu_instance;
  std::uint32_t compute_instance;
  std::uint64_t used_protected_memory;
};
static_assert(sizeof(ProcessDetail) == 32);

struct ProcessDetailList {
  std::uint32_t version;
  std::uint32_t mode;  // 0 compute, 1 graphics, 2 MPS
  std::uint32_t count;
  ProcessDetail* processes;
};
static_assert(sizeof(ProcessDetailList) == 24 && offsetof(ProcessDetailList, processes) == 16);
constexpr std::uint32_t kProcessDetailListVersion = 0x01000018;

struct TemperatureV1 {
  std::uint32_t version;
  int sensor;
  int temperature;
};
static_assert(sizeof(TemperatureV1) == 12);
constexpr std::uint32_t kTemperatureVersion = 0x0100000C;

struct ProcessUtilizationSample {
  std::uint32_t pid;
  std::uint64_t timestamp_us;
  std::uint32_t sm;
  std::uint32_t memory;
  std::uint32_t encoder;
  std::uint32_t decoder;
};
static_assert(sizeof(ProcessUtilizationSample) == 32 &&
              offsetof(ProcessUtilizationSample, sm) == 16);

struct EventData {
  Device device;
  std::uint64_t event_type;
  std::uint64_t event_data;
  std::uint32_t gpu_instance;
  std::uint32_t compute_instance;
};
static_assert(sizeof(EventData) == 32);
constexpr std::uint64_t kEventXid = 8;
constexpr std::uint64_t kEventGpuUnavailable = 0x4000;

}  // namespace berth::nvml
