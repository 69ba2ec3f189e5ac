// The part of the CUDA driver's binary interface that Berth uses: codes and handles.
//
// Written from the documented interface; tests/test_abi.py compares it with NVIDIA's own header
// where a registry has it. Used by the simulated driver in sim/, by berth-sim-job, and by the
// placeholder. Use the _v2 symbols: the names without a suffix have another meaning in later
// versions.
#pragma once

#include <cstdint>

namespace berth::cuda {

enum Result : int {
  success = 0,
  invalid_value = 1,
  out_of_memory = 2,
  not_initialized = 3,
  deinitialized = 4,
  stub_library = 34,
  device_unavailable = 46,
  no_device = 100,
  invalid_device = 101,
  invalid_context = 201,
  system_driver_mismatch = 803,
  unknown = 999,
};

using Device = int;
using DevicePointer = std::uint64_t;
struct OpaqueContext;
using Context = OpaqueContext*;

struct Uuid {
  char bytes[16];  // the hex digits of GPU-8-4-4-4-12
};
static_assert(sizeof(Uuid) == 16);

}  // namespace berth::cuda
