// A stand-in for a driver library that crashes as soon as it is started: for tests only. By
// SIGABRT, since a sanitizer would catch SIGSEGV and exit in its own way.
#include <csignal>

#include "devices/nvml_abi.h"

using berth::nvml::Return;

#define CRASH(name)                                                 \
  extern "C" __attribute__((visibility("default"))) Return name() { \
    std::raise(SIGABRT);                                            \
    return berth::nvml::unknown;                                    \
  }

CRASH(nvmlInit_v2)
CRASH(nvmlErrorString)
CRASH(nvmlSystemGetDriverVersion)
CRASH(nvmlDeviceGetCount_v2)
CRASH(nvmlDeviceGetHandleByIndex_v2)
CRASH(nvmlDeviceGetName)
CRASH(nvmlDeviceGetUUID)
CRASH(nvmlDeviceGetMemoryInfo)
