// Loads NVML's functions by a table of symbols; see nvml_api.h.
#include "devices/nvml_api.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <dlfcn.h>
#include <fmt/format.h>
#include <string_view>
#include <type_traits>

#include "base/text.h"

namespace berth::nvml {
namespace {

static_assert(std::is_standard_layout_v<Api> && sizeof(void*) == sizeof(void (*)()));

enum class Need { required, optional };

struct Symbol {
  const char* name;
  std::size_t field;  // offset in Api; rows for the same field follow each other, newest first
  Need need;
};

constexpr std::array kSymbols{
    Symbol{"nvmlInit_v2", offsetof(Api, init), Need::required},
    Symbol{"nvmlErrorString", offsetof(Api, error_string), Need::required},
    Symbol{"nvmlSystemGetDriverVersion", offsetof(Api, driver_version), Need::required},
    Symbol{"nvmlDeviceGetCount_v2", offsetof(Api, device_count), Need::required},
    Symbol{"nvmlDeviceGetHandleByIndex_v2", offsetof(Api, device_by_index), Need::required},
    Symbol{"nvmlDeviceGetName", offsetof(Api, name), Need::required},
    Symbol{"nvmlDeviceGetUUID", offsetof(Api, uuid), Need::required},
    Symbol{"nvmlDeviceGetMemoryInfo", offsetof(Api, memory_v1), Need::required},

    Symbol{"nvmlDeviceGetHandleByUUID", offsetof(Api, device_by_uuid), Need::optional},
    Symbol{"nvmlDeviceGetMemoryInfo_v2", offsetof(Api, memory_v2), Need::optional},
    Symbol{"nvmlDeviceGetUtilizationRates", offsetof(Api, utilization), Need::optional},
    Symbol{"nvmlDeviceGetTemperature", offsetof(Api, temperature), Need::optional},
    Symbol{"nvmlDeviceGetPowerUsage", offsetof(Api, power_usage), Need::optional},
    Symbol{"nvmlDeviceGetPerformanceState", offsetof(Api, performance_state), Need::optional},
    Symbol{"nvmlDeviceGetComputeMode", offsetof(Api, compute_mode), Need::optional},
    Symbol{"nvmlDeviceGetDisplayActive", offsetof(Api, display_active), Need::optional},
    Symbol{"nvmlDeviceGetPciInfo_v3", offsetof(Api, pci_info), Need::optional},
    Symbol{"nvmlSystemGetProcessName", offsetof(Api, process_name), Need::optional},

    Symbol{"nvmlDeviceGetComputeRunningProcesses", offsetof(Api, compute_processes[0]),
           Need::optional},
    Symbol{"nvmlDeviceGetComputeRunningProcesses_v2", offsetof(Api, compute_processes[1]),
           Need::optional},
    Symbol{"nvmlDeviceGetComputeRunningProcesses_v3", offsetof(Api, compute_processes[2]),
           Need::optional},
    Symbol{"nvmlDeviceGetGraphicsRunningProcesses", offsetof(Api, graphics_processes[0]),
           Need::optional},
    Symbol{"nvmlDeviceGetGraphicsRunningProcesses_v2", offsetof(Api, graphics_processes[1]),
           Need::optional},
    Symbol{"nvmlDeviceGetGraphicsRunningProcesses_v3", offsetof(Api, graphics_processes[2]),
           Need::optional},
    Symbol{"nvmlDeviceGetMPSComputeRunningProcesses", offsetof(Api, mps_processes[0]),
           Need::optional},
    Symbol{"nvmlDeviceGetMPSComputeRunningProcesses_v2", offsetof(Api, mps_processes[1]),
           Need::optional},
    Symbol{"nvmlDeviceGetMPSComputeRunningProcesses_v3", offsetof(Api, mps_processes[2]),
           Need::optional},

    Symbol{"nvmlDeviceGetMigMode", offsetof(Api, mig_mode), Need::optional},
    Symbol{"nvmlDeviceGetMaxMigDeviceCount", offsetof(Api, mig_max_count), Need::optional},
    Symbol{"nvmlDeviceGetMigDeviceHandleByIndex", offsetof(Api, mig_by_index), Need::optional},

    Symbol{"nvmlDeviceGetTopologyCommonAncestor", offsetof(Api, common_ancestor), Need::optional},
    Symbol{"nvmlDeviceGetNvLinkState", offsetof(Api, nvlink_state), Need::optional},
    Symbol{"nvmlDeviceGetNvLinkRemotePciInfo_v2", offsetof(Api, nvlink_remote_pci), Need::optional},
    Symbol{"nvmlDeviceGetNvLinkRemotePciInfo", offsetof(Api, nvlink_remote_pci), Need::optional},

    Symbol{"berth_sim_problem", offsetof(Api, sim_problem), Need::optional},
    Symbol{"berth_sim_problem_is_usage", offsetof(Api, sim_problem_is_usage), Need::optional},
};

}  // namespace

Result<Api> load_api(const std::string& library) {
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    const std::string_view why = reason == nullptr ? "" : reason;
    // A missing library and a broken one (wrong architecture, truncated) need different remedies.
    if (why.find("No such file") != std::string_view::npos) {
      return fail(ErrorKind::no_driver,
                  fmt::format("no NVIDIA driver: {} was not found; install the driver, or set "
                              "BERTH_SIM=4x24GiB to try berth on simulated GPUs",
                              library));
    }
    return fail(
        ErrorKind::no_driver,
        fmt::format("the NVIDIA driver's library cannot be loaded ({}); reinstall the driver",
                    printable(why)));
  }
  Api api{};
  auto* bytes = reinterpret_cast<unsigned char*>(&api);
  for (const Symbol& symbol : kSymbols) {
    void* present = nullptr;
    std::memcpy(&present, bytes + symbol.field, sizeof present);
    if (present != nullptr) continue;
    void* address = ::dlsym(handle, symbol.name);
    if (address == nullptr && symbol.need == Need::required) {
      return fail(
          ErrorKind::no_driver,
          fmt::format("the NVIDIA driver is too old, or its library is damaged: {} lacks {}; "
                      "install a driver of version 418 or later",
                      library, symbol.name));
    }
    std::memcpy(bytes + symbol.field, &address, sizeof address);
  }
  return api;
}

std::string describe_error(const Api& api, Return answer) {
  const char* words = api.error_string(answer);
  return words == nullptr ? fmt::format("NVML error {}", static_cast<int>(answer))
                          : printable(words);
}

}  // namespace berth::nvml
