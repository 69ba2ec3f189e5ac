// The common part of all calls of the simulated CUDA driver: initialisation, fork, faults, devices.
#pragma once

#include <atomic>
#include <sys/types.h>
#include <vector>

#include "devices/cuda_abi.h"
#include "sim/machine.h"

#define BERTH_CUDA extern "C" __attribute__((visibility("default"))) berth::cuda::Result
#define BERTH_THIS_CALL berth::sim::call_named(__func__)

namespace berth::sim {

// The driver of this process, created by the first cuInit that succeeds. Like the real driver, it
// does not read the environment again after that.
struct Driver {
  const Machine& machine;
  std::vector<Unit> devices;  // CUDA's number -> unit
  pid_t owner;                // the process that called cuInit; its forks cannot use the driver
};

cuda::Result open_driver(const Call& call, unsigned flags);

// nullptr before cuInit, and in a forked child of the process that called it.
const Driver* current_driver();

template <class Body>
cuda::Result on_driver(const Call& call, Body&& body) noexcept {
  try {
    const Driver* driver = current_driver();
    if (driver == nullptr) return cuda::not_initialized;
    if (const int answer = driver->machine.apply_faults(call, {}); answer != 0) {
      return static_cast<cuda::Result>(answer);
    }
    return body(*driver);
  } catch (...) {  // an exception must not reach a program in C
    return cuda::unknown;
  }
}

// `body` gets the unit of the device. All calls on a lost card fail.
template <class Body>
cuda::Result on_device(const Call& call, cuda::Device device, Body&& body) noexcept {
  try {
    const Driver* driver = current_driver();
    if (driver == nullptr) return cuda::not_initialized;
    if (device < 0 || static_cast<std::size_t>(device) >= driver->devices.size()) {
      return cuda::invalid_device;
    }
    const Unit& unit = driver->devices[static_cast<std::size_t>(device)];
    if (const int answer = driver->machine.apply_faults(call, unit.card); answer != 0) {
      return static_cast<cuda::Result>(answer);
    }
    if (driver->machine.is_lost(unit.card)) return cuda::unknown;
    return body(driver->machine, unit);
  } catch (...) {
    return cuda::unknown;
  }
}

template <class T, class U>
cuda::Result store(T* out, const U& value) {
  if (out == nullptr) return cuda::invalid_value;
  *out = static_cast<T>(value);
  return cuda::success;
}

}  // namespace berth::sim
