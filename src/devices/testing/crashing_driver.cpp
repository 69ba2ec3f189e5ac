// A driver library for tests that crashes at its first call.
//
// It uses SIGABRT, because a sanitizer would catch SIGSEGV and exit with a code of its own.
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
