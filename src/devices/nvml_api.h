// The functions of libnvidia-ml.so.1, loaded at run time: Berth is never linked against a driver.
//
// Required functions exist in every driver that Berth supports; load_api() refuses a library that
// lacks one of them. Optional functions are null if the driver is too old. If a function has
// several versions that behave alike, load_api() uses the newest one.
#pragma once

#include <string>

#include "base/result.h"
#include "devices/nvml_abi.h"

namespace berth::nvml {

struct Api {
  // required
  Return (*init)();
  const char* (*error_string)(Return);
  Return (*driver_version)(char*, unsigned);
  Return (*device_count)(unsigned*);
  Return (*device_by_index)(unsigned, Device*);
  Return (*name)(Device, char*, unsigned);
  Return (*uuid)(Device, char*, unsigned);
  Return (*memory_v1)(Device, MemoryV1*);

  // optional
  Return (*device_by_uuid)(const char*, Device*);
  Return (*memory_v2)(Device, MemoryV2*);
  Return (*utilization)(Device, Utilization*);
  Return (*temperature)(Device, int sensor, unsigned*);
  Return (*power_usage)(Device, unsigned* milliwatts);
  Return (*performance_state)(Device, int*);
  Return (*compute_mode)(Device, int*);
  Return (*display_active)(Device, int*);
  Return (*pci_info)(Device, PciInfo*);
  Return (*process_name)(unsigned pid, char*, unsigned);

  // The three lists of processes; [0] is version 1 (16-byte entries), [1] is _v2, [2] is _v3.
  Return (*compute_processes[3])(Device, unsigned* count, void*);
  Return (*graphics_processes[3])(Device, unsigned* count, void*);
  Return (*mps_processes[3])(Device, unsigned* count, void*);

  Return (*mig_mode)(Device, unsigned* current, unsigned* pending);
  Return (*mig_max_count)(Device, unsigned*);
  Return (*mig_by_index)(Device, unsigned, Device*);

  Return (*common_ancestor)(Device, Device, int* level);
  Return (*nvlink_state)(Device, unsigned link, int* active);
  Return (*nvlink_remote_pci)(Device, unsigned link, PciInfo*);

  // Only in the simulated driver: why BERTH_SIM could not be used, and whether the user's input is
  // wrong.
  const char* (*sim_problem)();
  int (*sim_problem_is_usage)();
};

// Loads `library`, a name or path for dlopen(). It stays loaded until the process exits: drivers
// start threads and do not support unloading. Errors are ErrorKind::no_driver.
Result<Api> load_api(const std::string& library);

// The driver's text for a code, escaped by printable().
std::string describe_error(const Api& api, Return answer);

}  // namespace berth::nvml
