// What every call of the stand-in CUDA driver passes through: initialisation, fork, faults,
// devices.
#pragma once

#include <atomic>
#include <sys/types.h>
#include <vector>

#include "devices/cuda_abi.h"
#include "sim/machine.h"

#define BERTH_CUDA extern "C" __attribute__((visibility("default"))) berth::cuda::Result
#define BERTH_THIS_CALL berth::sim::call_named(__func__)

namespace berth::sim {

// The driver of this process from the first cuInit that succeeds. The environment is not looked at
// again after that, as with the real one.
struct Driver {
  const Machine& machine;
  std::vector<Unit> devices;  // CUDA's number -> unit
  pid_t owner;                // who called cuInit: a child of fork() may not go on with it
};

cuda::Result open_driver(const Call& call, unsigned flags);

// Null before cuInit, and in a child of the process that called it.
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

// `body` gets the unit of the device. A lost card answers nothing any more.
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
