"""What nvidia-ml-py says of this server, as JSON; where it raises, the name of the exception.

Usage: pynvml_report.py (it loads the libnvidia-ml.so.1 that the dynamic linker finds)
"""

import json

import pynvml as nvml


def ask(function, *arguments):
    """The answer in plain types, or the name of what was raised instead."""
    try:
        return plain(function(*arguments))
    except (nvml.NVMLError, nvml.NVMLLibraryMismatchError) as error:
        return type(error).__name__


def plain(answer):
    if isinstance(answer, list):
        return [plain(part) for part in answer]
    if isinstance(answer, nvml.Structure):
        return {name: plain(getattr(answer, name)) for name, _ in answer._fields_}
    if isinstance(answer, nvml.nvmlFriendlyObject):
        return {name: plain(value) for name, value in vars(answer).items()}
    answer = getattr(answer, "value", answer)
    return answer.decode() if isinstance(answer, bytes) else answer


def links(device):
    """The bus ids at the far ends of the active NVLinks."""
    found = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        if ask(nvml.nvmlDeviceGetNvLinkState, device, link) == nvml.NVML_FEATURE_ENABLED:
            found.append(ask(nvml.nvmlDeviceGetNvLinkRemotePciInfo, device, link)["busId"])
    return found


def instances(device):
    """Each MIG instance, by its index; an index without one has an error."""
    count = ask(nvml.nvmlDeviceGetMaxMigDeviceCount, device)
    found = []
    for index in range(count if isinstance(count, int) else 0):
        try:
            instance = nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, index)
        except nvml.NVMLError as error:
            found.append(type(error).__name__)
            continue
        parent = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance)
        found.append({**unit(instance),
                      "parent": ask(nvml.nvmlDeviceGetUUID, parent),
                      "gpu_instance": ask(nvml.nvmlDeviceGetGpuInstanceId, instance),
                      "compute_instance": ask(nvml.nvmlDeviceGetComputeInstanceId, instance)})
    return found


def unit(device):
    """What is asked of cards and of MIG instances alike."""
    return {
        "name": ask(nvml.nvmlDeviceGetName, device),
        "uuid": ask(nvml.nvmlDeviceGetUUID, device),
        "is_instance": ask(nvml.nvmlDeviceIsMigDeviceHandle, device),
        "memory": ask(nvml.nvmlDeviceGetMemoryInfo, device),
        "memory_v2": ask(nvml.nvmlDeviceGetMemoryInfo, device, nvml.nvmlMemory_v2),
        "memory_version_2": ask(nvml.nvmlDeviceGetMemoryInfo, device, 2),
        "utilization": ask(nvml.nvmlDeviceGetUtilizationRates, device),
        "compute": ask(nvml.nvmlDeviceGetComputeRunningProcesses, device),
        "compute_v2": ask(nvml.nvmlDeviceGetComputeRunningProcesses_v2, device),
        "graphics": ask(nvml.nvmlDeviceGetGraphicsRunningProcesses, device),
        "mps": ask(nvml.nvmlDeviceGetMPSComputeRunningProcesses, device),
    }


def card(device, others):
    pci = ask(nvml.nvmlDeviceGetPciInfo, device)
    uuid = ask(nvml.nvmlDeviceGetUUID, device)
    return {
        **unit(device),
        "index": ask(nvml.nvmlDeviceGetIndex, device),
        "minor": ask(nvml.nvmlDeviceGetMinorNumber, device),
        "pci": pci,
        "uuid_by_pci": ask(lambda: nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByPciBusId(pci["busId"]))),
        "index_by_uuid": ask(lambda: nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetHandleByUUID(uuid))),
        "temperature": ask(nvml.nvmlDeviceGetTemperature, device, nvml.NVML_TEMPERATURE_GPU),
        "temperature_v": ask(nvml.nvmlDeviceGetTemperatureV, device, nvml.NVML_TEMPERATURE_GPU),
        "power_mw": ask(nvml.nvmlDeviceGetPowerUsage, device),
        "power_limit_mw": ask(nvml.nvmlDeviceGetEnforcedPowerLimit, device),
        "performance_state": ask(nvml.nvmlDeviceGetPerformanceState, device),
        "compute_mode": ask(nvml.nvmlDeviceGetComputeMode, device),
        "persistence_mode": ask(nvml.nvmlDeviceGetPersistenceMode, device),
        "display_active": ask(nvml.nvmlDeviceGetDisplayActive, device),
        "details": ask(nvml.nvmlDeviceGetRunningProcessDetailList, device, nvml.nvmlProcessDetailList_v1,
                       nvml.NVML_PROCESS_MODE_COMPUTE),
        "mig_mode": ask(nvml.nvmlDeviceGetMigMode, device),
        "instances": instances(device),
        "links": links(device),
        "topology": [ask(nvml.nvmlDeviceGetTopologyCommonAncestor, device, other) if other else None
                     for other in others],
    }


def handle(index):
    try:
        return nvml.nvmlDeviceGetHandleByIndex(index), None
    except nvml.NVMLError as error:
        return None, type(error).__name__


def report():
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return {"error": type(error).__name__, "words": str(error)}
    handles = [handle(index) for index in range(nvml.nvmlDeviceGetCount())]
    devices = [device for device, _ in handles]
    answer = {
        "driver": ask(nvml.nvmlSystemGetDriverVersion),
        "cuda": ask(nvml.nvmlSystemGetCudaDriverVersion),
        "cards": [card(device, devices) if device else error for device, error in handles],
        "after_the_last": handle(len(handles))[1],
    }
    nvml.nvmlShutdown()
    answer["after_shutdown"] = ask(nvml.nvmlDeviceGetCount)
    return answer


print(json.dumps(report()))
