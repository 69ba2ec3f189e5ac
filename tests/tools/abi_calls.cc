// A program as anyone would write it with NVIDIA's header: it opens the driver's library by name,
// and prints what it says of GPU 1, one "key value" a line. Built and run by tests/test_abi.py.
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <nvml.h>

namespace {

void* library = nullptr;

// The function of that name, with the type that NVIDIA's header gives it.
#define NVML(name) (reinterpret_cast<decltype(&name)>(find(#name)))

void* find(const char* name) {
  void* symbol = dlsym(library, name);
  if (symbol == nullptr) {
    std::printf("missing %s\n", name);
    std::exit(1);
  }
  return symbol;
}

void must(const char* what, nvmlReturn_t answer) {
  if (answer == NVML_SUCCESS) return;
  std::printf("%s answers %d\n", what, answer);
  std::exit(1);
}

#define MUST(call) must(#call, call)

}  // namespace

int main() {
  library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (library == nullptr) {
    std::printf("%s\n", dlerror());
    return 1;
  }
  MUST(NVML(nvmlInit_v2)());
  unsigned count = 0;
  MUST(NVML(nvmlDeviceGetCount_v2)(&count));
  std::printf("count %u\n", count);
  nvmlDevice_t device = nullptr;
  MUST(NVML(nvmlDeviceGetHandleByIndex_v2)(1, &device));
  char text[NVML_DEVICE_NAME_V2_BUFFER_SIZE];
  MUST(NVML(nvmlDeviceGetName)(device, text, sizeof(text)));
  std::printf("name %s\n", text);
  MUST(NVML(nvmlDeviceGetUUID)(device, text, sizeof(text)));
  std::printf("uuid %s\n", text);

  nvmlMemory_t memory{};
  MUST(NVML(nvmlDeviceGetMemoryInfo)(device, &memory));
  std::printf("memory %llu %llu %llu\n", memory.total, memory.free, memory.used);
  nvmlMemory_v2_t second{};
  second.version = nvmlMemory_v2;
  MUST(NVML(nvmlDeviceGetMemoryInfo_v2)(device, &second));
  std::printf("memory_v2 %llu %llu %llu %llu\n", second.total, second.reserved, second.free,
              second.used);
  nvmlUtilization_t utilization{};
  MUST(NVML(nvmlDeviceGetUtilizationRates)(device, &utilization));
  std::printf("utilization %u %u\n", utilization.gpu, utilization.memory);

  nvmlProcessInfo_t processes[4]{};
  count = 4;
  MUST(NVML(nvmlDeviceGetComputeRunningProcesses_v3)(device, &count, processes));
  for (unsigned i = 0; i < count; ++i) {
    std::printf("process %u %llu %x %x\n", processes[i].pid, processes[i].usedGpuMemory,
                processes[i].gpuInstanceId, processes[i].computeInstanceId);
  }
  nvmlProcessDetail_v1_t details[4]{};
  constexpr unsigned compute = 0;  // has a name only from CUDA 13 on
  nvmlProcessDetailList_v1_t list{nvmlProcessDetailList_v1, compute, 4, details};
  MUST(NVML(nvmlDeviceGetRunningProcessDetailList)(device, &list));
  std::printf("detail %u %u %llu\n", list.numProcArrayEntries, details[0].pid,
              details[0].usedGpuMemory);

  nvmlPciInfo_t pci{};
  MUST(NVML(nvmlDeviceGetPciInfo_v3)(device, &pci));
  std::printf("pci %s %s %u %u %u\n", pci.busId, pci.busIdLegacy, pci.domain, pci.bus, pci.device);
  nvmlDevice_t other = nullptr;
  MUST(NVML(nvmlDeviceGetHandleByIndex_v2)(0, &other));
  nvmlGpuTopologyLevel_t level{};
  MUST(NVML(nvmlDeviceGetTopologyCommonAncestor)(device, other, &level));
  std::printf("level %d\n", level);
  nvmlTemperature_v1_t temperature{nvmlTemperature_v1, NVML_TEMPERATURE_GPU, 0};
  MUST(NVML(nvmlDeviceGetTemperatureV)(device, &temperature));
  std::printf("temperature %d\n", temperature.temperature);
  MUST(NVML(nvmlShutdown)());
  std::printf("after %d %s\n", NVML(nvmlDeviceGetCount_v2)(&count),
              NVML(nvmlErrorString)(NVML_ERROR_UNINITIALIZED));
  return 0;
}
