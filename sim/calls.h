// The table of all calls that the simulated driver exports, with the driver version that added
// each.
//
// One table decides which calls a fault may name, which calls return "function not found" under an
// old driver, and (in calls_test.cpp) which symbols the built libraries must export.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include "sim/driver_version.h"

namespace berth::sim {

struct Call {
  std::string_view name;
  // {}: present in all versions. Two newer calls have {} as well, because nvitop uses them if the
  // symbol exists, and does not fall back when the call returns "function not found".
  DriverVersion since{};
};

constexpr std::array kCalls = std::to_array<Call>({
    {"nvmlInit"},
    {"nvmlInit_v2"},
    {"nvmlInitWithFlags"},
    {"nvmlShutdown"},
    {"nvmlSystemGetDriverVersion"},
    {"nvmlSystemGetNVMLVersion"},
    {"nvmlSystemGetCudaDriverVersion"},
    {"nvmlSystemGetCudaDriverVersion_v2"},
    {"nvmlSystemGetProcessName"},
    {"nvmlDeviceGetCount"},
    {"nvmlDeviceGetCount_v2"},
    {"nvmlDeviceGetHandleByIndex"},
    {"nvmlDeviceGetHandleByIndex_v2"},
    {"nvmlDeviceGetHandleByUUID"},
    {"nvmlDeviceGetHandleByPciBusId"},
    {"nvmlDeviceGetHandleByPciBusId_v2"},
    {"nvmlDeviceGetName"},
    {"nvmlDeviceGetUUID"},
    {"nvmlDeviceGetIndex"},
    {"nvmlDeviceGetMinorNumber"},
    {"nvmlDeviceGetPciInfo"},
    {"nvmlDeviceGetPciInfo_v2"},
    {"nvmlDeviceGetPciInfo_v3"},
    {"nvmlDeviceGetBrand"},
    {"nvmlDeviceGetSerial"},
    {"nvmlDeviceGetCudaComputeCapability"},
    {"nvmlDeviceGetMemoryInfo"},
    {"nvmlDeviceGetMemoryInfo_v2", {510, 39}},
    {"nvmlDeviceGetBAR1MemoryInfo"},
    {"nvmlDeviceGetUtilizationRates"},
    {"nvmlDeviceGetEncoderUtilization"},
    {"nvmlDeviceGetDecoderUtilization"},
    {"nvmlDeviceGetComputeRunningProcesses"},
    {"nvmlDeviceGetComputeRunningProcesses_v2", {450}},
    {"nvmlDeviceGetComputeRunningProcesses_v3", {510, 39}},
    {"nvmlDeviceGetGraphicsRunningProcesses"},
    {"nvmlDeviceGetGraphicsRunningProcesses_v2", {450}},
    {"nvmlDeviceGetGraphicsRunningProcesses_v3", {510, 39}},
    {"nvmlDeviceGetMPSComputeRunningProcesses", {450}},
    {"nvmlDeviceGetMPSComputeRunningProcesses_v2", {450}},
    {"nvmlDeviceGetMPSComputeRunningProcesses_v3", {510, 39}},
    {"nvmlDeviceGetRunningProcessDetailList", {535, 104}},
    {"nvmlDeviceGetProcessUtilization"},
    {"nvmlDeviceGetTemperature"},
    {"nvmlDeviceGetTemperatureV"},
    {"nvmlDeviceGetTemperatureThreshold"},
    {"nvmlDeviceGetPowerUsage"},
    {"nvmlDeviceGetEnforcedPowerLimit"},
    {"nvmlDeviceGetPowerManagementLimit"},
    {"nvmlDeviceGetFanSpeed"},
    {"nvmlDeviceGetFanSpeed_v2", {418}},
    {"nvmlDeviceGetPerformanceState"},
    {"nvmlDeviceGetComputeMode"},
    {"nvmlDeviceGetPersistenceMode"},
    {"nvmlDeviceGetDisplayMode"},
    {"nvmlDeviceGetDisplayActive"},
    {"nvmlDeviceGetDriverModel"},
    {"nvmlDeviceGetDriverModel_v2"},
    {"nvmlDeviceGetEccMode"},
    {"nvmlDeviceGetTotalEccErrors"},
    {"nvmlDeviceGetClockInfo"},
    {"nvmlDeviceGetMaxClockInfo"},
    {"nvmlDeviceGetMaxPcieLinkGeneration"},
    {"nvmlDeviceGetMaxPcieLinkWidth"},
    {"nvmlDeviceGetCurrPcieLinkGeneration"},
    {"nvmlDeviceGetCurrPcieLinkWidth"},
    {"nvmlDeviceGetPcieThroughput"},
    {"nvmlDeviceGetMigMode", {450}},
    {"nvmlDeviceIsMigDeviceHandle", {450}},
    {"nvmlDeviceGetGpuInstanceId", {450}},
    {"nvmlDeviceGetComputeInstanceId", {450}},
    {"nvmlDeviceGetMaxMigDeviceCount", {450}},
    {"nvmlDeviceGetMigDeviceHandleByIndex", {450}},
    {"nvmlDeviceGetDeviceHandleFromMigDeviceHandle", {450}},
    {"nvmlDeviceGetTopologyCommonAncestor"},
    {"nvmlDeviceGetNvLinkState"},
    {"nvmlDeviceGetNvLinkRemotePciInfo"},
    {"nvmlDeviceGetNvLinkRemotePciInfo_v2"},
    {"nvmlDeviceGetCpuAffinity"},
    {"nvmlEventSetCreate"},
    {"nvmlEventSetFree"},
    {"nvmlDeviceGetSupportedEventTypes"},
    {"nvmlDeviceRegisterEvents"},
    {"nvmlEventSetWait"},
    {"nvmlEventSetWait_v2", {450}},
    {"cuInit"},
    {"cuDriverGetVersion"},
    {"cuDeviceGetCount"},
    {"cuDeviceGet"},
    {"cuDeviceGetName"},
    {"cuDeviceGetUuid"},
    {"cuDeviceGetUuid_v2"},
    {"cuDeviceTotalMem_v2"},
    {"cuDeviceGetAttribute"},
    {"cuDeviceGetPCIBusId"},
    {"cuDeviceGetByPCIBusId"},
    {"cuDevicePrimaryCtxRetain"},
    {"cuDevicePrimaryCtxRelease_v2"},
    {"cuDevicePrimaryCtxGetState"},
    {"cuCtxCreate_v2"},
    {"cuCtxDestroy_v2"},
    {"cuCtxPushCurrent_v2"},
    {"cuCtxPopCurrent_v2"},
    {"cuCtxGetCurrent"},
    {"cuCtxSetCurrent"},
    {"cuCtxGetDevice"},
    {"cuCtxSynchronize"},
    {"cuMemAlloc_v2"},
    {"cuMemFree_v2"},
    {"cuMemGetInfo_v2"},
});

// The table's entry for a name. It is evaluated at compile time, so that a call that is not in the
// table does not compile.
consteval const Call& call_named(std::string_view name) {
  return *std::find_if(kCalls.begin(), kCalls.end(),
                       [&](const Call& call) { return call.name == name; });
}

// "nvmlDeviceGetCount" for "nvmlDeviceGetCount_v2". A fault with this name applies to all versions.
constexpr std::string_view without_version(std::string_view name) {
  // The newer versions of these two calls have other suffixes.
  if (name == "nvmlDeviceGetTemperatureV") return "nvmlDeviceGetTemperature";
  if (name == "nvmlInitWithFlags") return "nvmlInit";
  const auto digit = name.find_last_not_of("0123456789");
  if (digit + 1 < name.size() && name.substr(0, digit + 1).ends_with("_v")) {
    return name.substr(0, digit - 1);
  }
  return name;
}

constexpr bool names_call(std::string_view pattern, std::string_view name) {
  return pattern == name || pattern == without_version(name);
}

constexpr bool has_call(DriverVersion driver, const Call& call) {
  if (driver < call.since) return false;
  // 535.98 removed the lists with 32-byte records; 535.104.05 added those with 24-byte records
  // again.
  const bool list = call.name.ends_with("RunningProcesses_v3");
  return !(list && driver >= DriverVersion{535, 98} && driver < DriverVersion{535, 104});
}

// Whether that driver's _v3 process lists have records of 32 bytes although its header says 24.
constexpr bool has_wide_process_records(DriverVersion driver) {
  return driver >= DriverVersion{535, 43} && driver < DriverVersion{535, 87};
}

}  // namespace berth::sim
