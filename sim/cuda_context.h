// The CUDA contexts of this process and the memory allocated in them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "base/mutex.h"
#include "sim/cuda_session.h"

namespace berth::sim {

// Thread-safe. Each thread has its own stack of current contexts, in cuda_memory.cpp.
class Contexts {
 public:
  static Contexts& of_this_process();

  // The device's primary context. The first retain creates it, the last release destroys it.
  cuda::Result retain_primary(const Machine& machine, const Unit& unit, cuda::Device device,
                              cuda::Context* out);
  cuda::Result release_primary(const Machine& machine, cuda::Device device);
  bool is_primary_active(cuda::Device device);

  cuda::Result create(const Machine& machine, const Unit& unit, cuda::Device device,
                      cuda::Context* out);
  cuda::Result destroy(const Driver& driver, cuda::Context context);

  // nullopt: there is no such context.
  std::optional<cuda::Device> device_of(cuda::Context context);
  bool has_context_on(cuda::Device device);

  cuda::Result allocate(const Driver& driver, cuda::Context context, std::size_t size,
                        cuda::DevicePointer* out);
  cuda::Result free(const Driver& driver, cuda::DevicePointer pointer);

 private:
  struct Primary {
    cuda::Context context;
    unsigned retained = 0;
  };
  struct Allocation {
    cuda::Context context;
    std::uint64_t size;
  };

  cuda::Result open(const Machine& machine, const Unit& unit, cuda::Device device,
                    cuda::Context* out) REQUIRES(mutex_);
  void close(const Machine& machine, const Unit& unit, cuda::Context context) REQUIRES(mutex_);

  Mutex mutex_;
  // Handles are never reused, so that a destroyed context is recognised.
  std::uintptr_t last_context_ GUARDED_BY(mutex_) = 0;
  cuda::DevicePointer next_address_ GUARDED_BY(mutex_) = 0x7F0000000000;
  std::map<cuda::Context, cuda::Device> contexts_ GUARDED_BY(mutex_);
  std::map<cuda::Device, Primary> primaries_ GUARDED_BY(mutex_);
  std::map<cuda::DevicePointer, Allocation> allocations_ GUARDED_BY(mutex_);
};

}  // namespace berth::sim
