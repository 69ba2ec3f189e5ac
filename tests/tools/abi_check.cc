// Compares berth's descriptions of NVIDIA's interfaces (src/devices/*_abi.h, nvml_api.h) and the
// stand-ins' functions with NVIDIA's own headers. Prints each difference; exits 1 if there is one.
//
// Built and run by tests/test_abi.py, which writes stand_ins.h (the declarations found in sim/) and
// sees to it that the tables below leave nothing out. Not named .cpp: linters lack the headers.
#define NVML_NO_UNVERSIONED_FUNC_DEFS  // each function under its own name
#include <cstddef>
#include <cstdio>
#include <cuda.h>
#include <nvml.h>
#include <type_traits>

#include "devices/cuda_abi.h"
#include "devices/nvml_abi.h"
#include "devices/nvml_api.h"
#include "stand_ins.h"

namespace {

int checks = 0;
int differences = 0;

void check(bool good, const char* what) {
  ++checks;
  if (good) return;
  ++differences;
  std::printf("NVIDIA's header has another %s\n", what);
}

void same(const char* what, auto ours, auto theirs) {
  const auto a = static_cast<long long>(ours);
  const auto b = static_cast<long long>(theirs);
  check(a == b, what);
  if (a != b) std::printf("  ours is %lld, NVIDIA's is %lld\n", a, b);
}

template <class T>
concept Complete = requires {
  sizeof(T);
};

// Whether a value of one type is passed where, and read as, a value of the other would be.
template <class Ours, class Theirs>
constexpr bool passed_alike() {
  if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>) {
    using To = std::remove_pointer_t<Ours>;
    using There = std::remove_pointer_t<Theirs>;
    if constexpr (std::is_void_v<To>) return true;  // a list whose entries depend on the version
    if constexpr (Complete<To> && Complete<There>) return sizeof(To) == sizeof(There);
    return Complete<To> == Complete<There>;
  } else {
    return std::is_pointer_v<Ours> == std::is_pointer_v<Theirs> && sizeof(Ours) == sizeof(Theirs);
  }
}

template <class R1, class... Ours, class R2, class... Theirs>
constexpr bool called_alike(R1 (*)(Ours...), R2 (*)(Theirs...)) {
  if constexpr (sizeof...(Ours) != sizeof...(Theirs)) {
    return false;
  } else {
    return (passed_alike<R1, R2>() && ... && passed_alike<Ours, Theirs>());
  }
}

#define VALUE(ours, theirs) same(#theirs, ours, theirs)
#define STRUCT(ours, theirs) same("size of " #theirs, sizeof(ours), sizeof(theirs))
#define FIELD(ours, field, theirs, their_field)                     \
  same("place of " #theirs "." #their_field, offsetof(ours, field), \
       offsetof(theirs, their_field));                              \
  same("size of " #theirs "." #their_field, sizeof(ours::field), sizeof(theirs::their_field))
#define CALL(ours, theirs) /* by their types alone: there is nothing to link with */    \
  check(called_alike(std::decay_t<decltype(ours)>{}, decltype(&theirs){}), "signature " \
                                                                           "of " #theirs)

void nvml_codes() {
  using namespace berth::nvml;
  same("size of nvmlReturn_t", sizeof(Return), sizeof(nvmlReturn_t));
  VALUE(success, NVML_SUCCESS);
  VALUE(uninitialized, NVML_ERROR_UNINITIALIZED);
  VALUE(invalid_argument, NVML_ERROR_INVALID_ARGUMENT);
  VALUE(not_supported, NVML_ERROR_NOT_SUPPORTED);
  VALUE(no_permission, NVML_ERROR_NO_PERMISSION);
  VALUE(not_found, NVML_ERROR_NOT_FOUND);
  VALUE(insufficient_size, NVML_ERROR_INSUFFICIENT_SIZE);
  VALUE(driver_not_loaded, NVML_ERROR_DRIVER_NOT_LOADED);
  VALUE(timeout, NVML_ERROR_TIMEOUT);
  VALUE(library_not_found, NVML_ERROR_LIBRARY_NOT_FOUND);
  VALUE(function_not_found, NVML_ERROR_FUNCTION_NOT_FOUND);
  VALUE(gpu_is_lost, NVML_ERROR_GPU_IS_LOST);
  VALUE(reset_required, NVML_ERROR_RESET_REQUIRED);
  VALUE(operating_system, NVML_ERROR_OPERATING_SYSTEM);
  VALUE(lib_rm_version_mismatch, NVML_ERROR_LIB_RM_VERSION_MISMATCH);
  VALUE(in_use, NVML_ERROR_IN_USE);
  VALUE(memory, NVML_ERROR_MEMORY);
  VALUE(no_data, NVML_ERROR_NO_DATA);
  VALUE(argument_version_mismatch, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  VALUE(gpu_not_found, NVML_ERROR_GPU_NOT_FOUND);
  VALUE(invalid_state, NVML_ERROR_INVALID_STATE);
  VALUE(unknown, NVML_ERROR_UNKNOWN);

  VALUE(compute_default, NVML_COMPUTEMODE_DEFAULT);
  VALUE(compute_prohibited, NVML_COMPUTEMODE_PROHIBITED);
  VALUE(compute_exclusive_process, NVML_COMPUTEMODE_EXCLUSIVE_PROCESS);

  VALUE(topology_internal, NVML_TOPOLOGY_INTERNAL);
  VALUE(topology_single, NVML_TOPOLOGY_SINGLE);
  VALUE(topology_multiple, NVML_TOPOLOGY_MULTIPLE);
  VALUE(topology_hostbridge, NVML_TOPOLOGY_HOSTBRIDGE);
  VALUE(topology_node, NVML_TOPOLOGY_NODE);
  VALUE(topology_system, NVML_TOPOLOGY_SYSTEM);

  VALUE(kMemoryNotAvailable, static_cast<unsigned long long>(NVML_VALUE_NOT_AVAILABLE));
  VALUE(kNoInstance, 0xFFFFFFFF);  // said in a comment at nvmlProcessInfo_v2_t::gpuInstanceId
  VALUE(kPerformanceStateUnknown, NVML_PSTATE_UNKNOWN);
  VALUE(kMemoryV2Version, nvmlMemory_v2);
  VALUE(kProcessDetailListVersion, nvmlProcessDetailList_v1);
  VALUE(kTemperatureVersion, nvmlTemperature_v1);
  VALUE(kEventXid, nvmlEventTypeXidCriticalError);
  VALUE(kEventGpuUnavailable, nvmlEventTypeGpuUnavailableError);
  // It grows with the hardware: 18 in CUDA 12, 36 in CUDA 13. berth must know the most.
  check(kMaxNvLinks >= NVML_NVLINK_MAX_LINKS, "NVML_NVLINK_MAX_LINKS");
}

void nvml_structures() {
  using namespace berth::nvml;
  STRUCT(Device, nvmlDevice_t);
  STRUCT(EventSet, nvmlEventSet_t);

  STRUCT(PciInfo, nvmlPciInfo_t);
  FIELD(PciInfo, bus_id_legacy, nvmlPciInfo_t, busIdLegacy);
  FIELD(PciInfo, domain, nvmlPciInfo_t, domain);
  FIELD(PciInfo, bus, nvmlPciInfo_t, bus);
  FIELD(PciInfo, device, nvmlPciInfo_t, device);
  FIELD(PciInfo, pci_device_id, nvmlPciInfo_t, pciDeviceId);
  FIELD(PciInfo, pci_subsystem_id, nvmlPciInfo_t, pciSubSystemId);
  FIELD(PciInfo, bus_id, nvmlPciInfo_t, busId);

  STRUCT(MemoryV1, nvmlMemory_t);
  FIELD(MemoryV1, total, nvmlMemory_t, total);
  FIELD(MemoryV1, free, nvmlMemory_t, free);
  FIELD(MemoryV1, used, nvmlMemory_t, used);

  STRUCT(MemoryV2, nvmlMemory_v2_t);
  FIELD(MemoryV2, version, nvmlMemory_v2_t, version);
  FIELD(MemoryV2, total, nvmlMemory_v2_t, total);
  FIELD(MemoryV2, reserved, nvmlMemory_v2_t, reserved);
  FIELD(MemoryV2, free, nvmlMemory_v2_t, free);
  FIELD(MemoryV2, used, nvmlMemory_v2_t, used);

  STRUCT(Utilization, nvmlUtilization_t);
  FIELD(Utilization, gpu, nvmlUtilization_t, gpu);
  FIELD(Utilization, memory, nvmlUtilization_t, memory);

  STRUCT(ProcessInfoV1, nvmlProcessInfo_v1_t);
  FIELD(ProcessInfoV1, pid, nvmlProcessInfo_v1_t, pid);
  FIELD(ProcessInfoV1, used_memory, nvmlProcessInfo_v1_t, usedGpuMemory);

  STRUCT(ProcessInfoV2, nvmlProcessInfo_v2_t);
  FIELD(ProcessInfoV2, pid, nvmlProcessInfo_v2_t, pid);
  FIELD(ProcessInfoV2, used_memory, nvmlProcessInfo_v2_t, usedGpuMemory);
  FIELD(ProcessInfoV2, gpu_instance, nvmlProcessInfo_v2_t, gpuInstanceId);
  FIELD(ProcessInfoV2, compute_instance, nvmlProcessInfo_v2_t, computeInstanceId);

  STRUCT(ProcessDetail, nvmlProcessDetail_v1_t);
  FIELD(ProcessDetail, pid, nvmlProcessDetail_v1_t, pid);
  FIELD(ProcessDetail, used_memory, nvmlProcessDetail_v1_t, usedGpuMemory);
  FIELD(ProcessDetail, gpu_instance, nvmlProcessDetail_v1_t, gpuInstanceId);
  FIELD(ProcessDetail, compute_instance, nvmlProcessDetail_v1_t, computeInstanceId);
  FIELD(ProcessDetail, used_protected_memory, nvmlProcessDetail_v1_t, usedGpuCcProtectedMemory);

  STRUCT(ProcessDetailList, nvmlProcessDetailList_v1_t);
  FIELD(ProcessDetailList, version, nvmlProcessDetailList_v1_t, version);
  FIELD(ProcessDetailList, mode, nvmlProcessDetailList_v1_t, mode);
  FIELD(ProcessDetailList, count, nvmlProcessDetailList_v1_t, numProcArrayEntries);
  FIELD(ProcessDetailList, processes, nvmlProcessDetailList_v1_t, procArray);

  STRUCT(TemperatureV1, nvmlTemperature_v1_t);
  FIELD(TemperatureV1, version, nvmlTemperature_v1_t, version);
  FIELD(TemperatureV1, sensor, nvmlTemperature_v1_t, sensorType);
  FIELD(TemperatureV1, temperature, nvmlTemperature_v1_t, temperature);

  STRUCT(ProcessUtilizationSample, nvmlProcessUtilizationSample_t);
  FIELD(ProcessUtilizationSample, pid, nvmlProcessUtilizationSample_t, pid);
  FIELD(ProcessUtilizationSample, timestamp_us, nvmlProcessUtilizationSample_t, timeStamp);
  FIELD(ProcessUtilizationSample, sm, nvmlProcessUtilizationSample_t, smUtil);
  FIELD(ProcessUtilizationSample, memory, nvmlProcessUtilizationSample_t, memUtil);
  FIELD(ProcessUtilizationSample, encoder, nvmlProcessUtilizationSample_t, encUtil);
  FIELD(ProcessUtilizationSample, decoder, nvmlProcessUtilizationSample_t, decUtil);

  STRUCT(EventData, nvmlEventData_t);
  FIELD(EventData, device, nvmlEventData_t, device);
  FIELD(EventData, event_type, nvmlEventData_t, eventType);
  FIELD(EventData, event_data, nvmlEventData_t, eventData);
  FIELD(EventData, gpu_instance, nvmlEventData_t, gpuInstanceId);
  FIELD(EventData, compute_instance, nvmlEventData_t, computeInstanceId);
}

// What berth itself calls.
void nvml_calls() {
  using berth::nvml::Api;
  CALL(Api::init, nvmlInit_v2);
  CALL(Api::error_string, nvmlErrorString);
  CALL(Api::driver_version, nvmlSystemGetDriverVersion);
  CALL(Api::device_count, nvmlDeviceGetCount_v2);
  CALL(Api::device_by_index, nvmlDeviceGetHandleByIndex_v2);
  CALL(Api::device_by_uuid, nvmlDeviceGetHandleByUUID);
  CALL(Api::name, nvmlDeviceGetName);
  CALL(Api::uuid, nvmlDeviceGetUUID);
  CALL(Api::memory_v1, nvmlDeviceGetMemoryInfo);
  CALL(Api::memory_v2, nvmlDeviceGetMemoryInfo_v2);
  CALL(Api::utilization, nvmlDeviceGetUtilizationRates);
  CALL(Api::temperature, nvmlDeviceGetTemperature);
  CALL(Api::power_usage, nvmlDeviceGetPowerUsage);
  CALL(Api::performance_state, nvmlDeviceGetPerformanceState);
  CALL(Api::compute_mode, nvmlDeviceGetComputeMode);
  CALL(Api::display_active, nvmlDeviceGetDisplayActive);
  CALL(Api::pci_info, nvmlDeviceGetPciInfo_v3);
  CALL(Api::process_name, nvmlSystemGetProcessName);
  CALL(*Api::compute_processes, nvmlDeviceGetComputeRunningProcesses_v3);
  CALL(*Api::graphics_processes, nvmlDeviceGetGraphicsRunningProcesses_v3);
  CALL(*Api::mps_processes, nvmlDeviceGetMPSComputeRunningProcesses_v3);
  CALL(Api::mig_mode, nvmlDeviceGetMigMode);
  CALL(Api::mig_max_count, nvmlDeviceGetMaxMigDeviceCount);
  CALL(Api::mig_by_index, nvmlDeviceGetMigDeviceHandleByIndex);
  CALL(Api::common_ancestor, nvmlDeviceGetTopologyCommonAncestor);
  CALL(Api::nvlink_state, nvmlDeviceGetNvLinkState);
  CALL(Api::nvlink_remote_pci, nvmlDeviceGetNvLinkRemotePciInfo_v2);
}

void cuda_codes() {
  using namespace berth::cuda;
  same("size of CUresult", sizeof(Result), sizeof(CUresult));
  VALUE(success, CUDA_SUCCESS);
  VALUE(invalid_value, CUDA_ERROR_INVALID_VALUE);
  VALUE(out_of_memory, CUDA_ERROR_OUT_OF_MEMORY);
  VALUE(not_initialized, CUDA_ERROR_NOT_INITIALIZED);
  VALUE(deinitialized, CUDA_ERROR_DEINITIALIZED);
  VALUE(stub_library, CUDA_ERROR_STUB_LIBRARY);
  VALUE(device_unavailable, CUDA_ERROR_DEVICE_UNAVAILABLE);
  VALUE(no_device, CUDA_ERROR_NO_DEVICE);
  VALUE(invalid_device, CUDA_ERROR_INVALID_DEVICE);
  VALUE(invalid_context, CUDA_ERROR_INVALID_CONTEXT);
  VALUE(system_driver_mismatch, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
  VALUE(unknown, CUDA_ERROR_UNKNOWN);

  STRUCT(Device, CUdevice);
  STRUCT(DevicePointer, CUdeviceptr);
  STRUCT(Context, CUcontext);
  STRUCT(Uuid, CUuuid);
  FIELD(Uuid, bytes, CUuuid, bytes);
}

// What the stand-ins export; CUDA 13's header no longer declares the older forms that they have.
void stand_in_calls() {
#define STAND_IN(name) CALL(&stand_in::name, name);
  NVML_STAND_INS
#if CUDA_VERSION < 13000
  CUDA_STAND_INS
#endif
}

}  // namespace

int main() {
  nvml_codes();
  nvml_structures();
  nvml_calls();
  cuda_codes();
  stand_in_calls();
  std::printf("%d checks, %d differences\n", checks, differences);
  return differences == 0 ? 0 : 1;
}
