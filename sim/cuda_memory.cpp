// The calls of the simulated CUDA driver for contexts and memory.
#include "sim/cuda_context.h"

using namespace berth;
using namespace berth::sim;

namespace {

// The contexts that this thread has pushed; the last one is current.
thread_local std::vector<cuda::Context> stack;

Contexts& contexts() {
  return Contexts::of_this_process();
}

// For calls on the current context. `body` gets the unit of its device.
template <class Body>
cuda::Result on_current(const Call& call, Body&& body) {
  const Driver* driver = current_driver();
  if (driver == nullptr) return cuda::not_initialized;
  const auto device = stack.empty() ? std::nullopt : contexts().device_of(stack.back());
  if (!device) return cuda::invalid_context;
  return on_device(call, *device,
                   [&](const Machine&, const Unit& unit) { return body(*driver, unit); });
}

}  // namespace

BERTH_CUDA cuDevicePrimaryCtxRetain(cuda::Context* context, cuda::Device device) {
  return on_device(BERTH_THIS_CALL, device, [&](const Machine& machine, const Unit& unit) {
    return contexts().retain_primary(machine, unit, device, context);
  });
}

BERTH_CUDA cuDevicePrimaryCtxRelease_v2(cuda::Device device) {
  return on_device(BERTH_THIS_CALL, device, [&](const Machine& machine, const Unit&) {
    return contexts().release_primary(machine, device);
  });
}

BERTH_CUDA cuDevicePrimaryCtxGetState(cuda::Device device, unsigned* flags, int* active) {
  return on_device(BERTH_THIS_CALL, device, [&](const Machine&, const Unit&) {
    const auto answer = store(flags, 0);
    return answer == cuda::success ? store(active, contexts().is_primary_active(device)) : answer;
  });
}

BERTH_CUDA cuCtxCreate_v2(cuda::Context* context, unsigned, cuda::Device device) {
  return on_device(BERTH_THIS_CALL, device, [&](const Machine& machine, const Unit& unit) {
    const auto answer = contexts().create(machine, unit, device, context);
    if (answer == cuda::success) stack.push_back(*context);
    return answer;
  });
}

BERTH_CUDA cuCtxDestroy_v2(cuda::Context context) {
  return on_driver(BERTH_THIS_CALL, [&](const Driver& driver) {
    const auto answer = contexts().destroy(driver, context);
    if (answer == cuda::success && !stack.empty() && stack.back() == context) stack.pop_back();
    return answer;
  });
}

BERTH_CUDA cuCtxPushCurrent_v2(cuda::Context context) {
  return on_driver(BERTH_THIS_CALL, [&](const Driver&) {
    if (!contexts().device_of(context)) return cuda::invalid_context;
    stack.push_back(context);
    return cuda::success;
  });
}

BERTH_CUDA cuCtxPopCurrent_v2(cuda::Context* context) {
  return on_driver(BERTH_THIS_CALL, [&](const Driver&) {
    if (stack.empty()) return cuda::invalid_context;
    if (context != nullptr) *context = stack.back();
    stack.pop_back();
    return cuda::success;
  });
}

BERTH_CUDA cuCtxGetCurrent(cuda::Context* context) {
  return on_driver(BERTH_THIS_CALL, [&](const Driver&) {
    return store(context, stack.empty() ? nullptr : stack.back());
  });
}

BERTH_CUDA cuCtxSetCurrent(cuda::Context context) {
  return on_driver(BERTH_THIS_CALL, [&](const Driver&) {
    if (context != nullptr && !contexts().device_of(context)) return cuda::invalid_context;
    if (!stack.empty()) stack.pop_back();
    if (context != nullptr) stack.push_back(context);
    return cuda::success;
  });
}

BERTH_CUDA cuCtxGetDevice(cuda::Device* out) {
  return on_driver(BERTH_THIS_CALL, [&](const Driver&) {
    const auto device = stack.empty() ? std::nullopt : contexts().device_of(stack.back());
    return device ? store(out, *device) : cuda::invalid_context;
  });
}

BERTH_CUDA cuCtxSynchronize() {
  return on_current(BERTH_THIS_CALL, [](const Driver&, const Unit&) { return cuda::success; });
}

BERTH_CUDA cuMemAlloc_v2(cuda::DevicePointer* pointer, std::size_t size) {
  return on_current(BERTH_THIS_CALL, [&](const Driver& driver, const Unit&) {
    return contexts().allocate(driver, stack.back(), size, pointer);
  });
}

BERTH_CUDA cuMemFree_v2(cuda::DevicePointer pointer) {
  return on_driver(BERTH_THIS_CALL,
                   [&](const Driver& driver) { return contexts().free(driver, pointer); });
}

BERTH_CUDA cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return on_current(BERTH_THIS_CALL, [&](const Driver& driver, const Unit& unit) {
    const MemoryUse memory = driver.machine.memory_of(unit);
    const auto answer = store(free, memory.free());
    return answer == cuda::success ? store(total, memory.total) : answer;
  });
}

// An extension: sets the utilisation (0 to 100) that this process causes on a device on which it
// has a context.
extern "C" __attribute__((visibility("default"))) int berth_sim_set_utilization(int device,
                                                                                unsigned percent) {
  const Driver* driver = current_driver();
  if (driver == nullptr) return cuda::not_initialized;
  if (device < 0 || static_cast<std::size_t>(device) >= driver->devices.size())
    return cuda::invalid_device;
  if (percent > 100) return cuda::invalid_value;
  if (!contexts().has_context_on(device)) return cuda::invalid_context;
  driver->machine.state().set_utilization(driver->devices[static_cast<std::size_t>(device)],
                                          percent);
  return cuda::success;
}

// An extension: how often NVML listed the compute processes of a device's card, for any process.
extern "C" __attribute__((visibility("default"))) unsigned long long berth_sim_process_lists(
    int device) {
  const Driver* driver = current_driver();
  if (driver == nullptr || device < 0 || static_cast<std::size_t>(device) >= driver->devices.size())
    return 0;
  const Unit& unit = driver->devices[static_cast<std::size_t>(device)];
  return driver->machine.state().process_lists(unit.card);
}
