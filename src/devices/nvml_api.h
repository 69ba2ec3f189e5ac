// The functions of libnvidia-ml.so.1, found at run time: berth is never linked against a driver.
//
// Required functions exist in every driver that berth supports; without one of them the library is
// refused. Optional ones are null where the driver is too old for them. Where a function has
// several versions that behave alike, the newest that exists is taken.
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

  // The three lists of processes; [0] is v1 (16-byte entries), [1] v2, [2] v3.
  Return (*compute_processes[3])(Device, unsigned* count, void*);
  Return (*graphics_processes[3])(Device, unsigned* count, void*);
  Return (*mps_processes[3])(Device, unsigned* count, void*);

  Return (*mig_mode)(Device, unsigned* current, unsigned* pending);
  Return (*mig_max_count)(Device, unsigned*);
  Return (*mig_by_index)(Device, unsigned, Device*);

  Return (*common_ancestor)(Device, Device, int* level);
  Return (*nvlink_state)(Device, unsigned link, int* active);
  Return (*nvlink_remote_pci)(Device, unsigned link, PciInfo*);

  // Only in the simulated driver: why BERTH_SIM could not be used, and whether that is the user's
  // own input.
  const char* (*sim_problem)();
  int (*sim_problem_is_usage)();
};

// Loads `library` (a name for the dynamic linker, or a path) for the rest of the process's life:
// drivers start threads and are not made to be unloaded. Errors are ErrorKind::no_driver.
Result<Api> load_api(const std::string& library);

// The driver's words for a code, fit for a terminal.
std::string describe_error(const Api& api, Return answer);

}  // namespace berth::nvml
