// The contexts of this process and the memory allocated in them.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "sim/cuda_session.h"

namespace berth::sim {

// Thread-safe. What a thread has current is the thread's own (cuda_context.cpp).
class Contexts {
 public:
  static Contexts& of_this_process();

  // The device's primary context: made by the first retain, gone with the last release.
  cuda::Result retain_primary(const Machine& machine, const Unit& unit, cuda::Device device,
                              cuda::Context* out);
  cuda::Result release_primary(const Machine& machine, cuda::Device device);
  bool primary_is_active(cuda::Device device);

  cuda::Result create(const Machine& machine, const Unit& unit, cuda::Device device,
                      cuda::Context* out);
  cuda::Result destroy(const Driver& driver, cuda::Context context);

  // The device of a context that exists.
  std::optional<cuda::Device> device_of(cuda::Context context);
  bool any_on(cuda::Device device);

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
                    cuda::Context* out);
  void close(const Machine& machine, const Unit& unit, cuda::Context context);

  std::mutex mutex_;
  std::uintptr_t last_context_ = 0;  // never used twice: a destroyed context stays recognisable
  cuda::DevicePointer next_address_ = 0x7F0000000000;
  std::map<cuda::Context, cuda::Device> contexts_;
  std::map<cuda::Device, Primary> primaries_;
  std::map<cuda::DevicePointer, Allocation> allocations_;
};

}  // namespace berth::sim
