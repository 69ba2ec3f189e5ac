// Initialises the simulated CUDA driver; see cuda_session.h.
#include "sim/cuda_session.h"

#include <unistd.h>

#include "base/environment.h"
#include "base/mutex.h"
#include "sim/loader.h"
#include "sim/visible_devices.h"

namespace berth::sim {
namespace {

Mutex driver_mutex;  // only for setting the_driver
std::atomic<const Driver*> the_driver{nullptr};

}  // namespace

const Driver* current_driver() {
  const Driver* driver = the_driver.load(std::memory_order_acquire);
  return driver != nullptr && driver->owner == ::getpid() ? driver : nullptr;
}

cuda::Result open_driver(const Call& call, unsigned flags) {
  if (the_driver.load(std::memory_order_acquire) != nullptr) {
    const Driver* driver = current_driver();
    if (driver == nullptr) return cuda::not_initialized;
    return static_cast<cuda::Result>(driver->machine.apply_faults(call, {}));
  }
  if (flags != 0) return cuda::invalid_value;
  const LoadResult load = load_machine();
  if (load.absent) return cuda::no_device;
  if (load.machine == nullptr) return cuda::unknown;
  if (const int answer = load.machine->apply_faults(call, {}); answer != 0)
    return static_cast<cuda::Result>(answer);
  const auto& cards = load.machine->server().cards;
  std::vector<bool> lost;
  for (std::size_t i = 0; i < cards.size(); ++i) lost.push_back(load.machine->is_lost(i));
  auto devices =
      visible_devices(cards, lost, get_env("CUDA_VISIBLE_DEVICES"), get_env("CUDA_DEVICE_ORDER"));
  if (devices.empty()) return cuda::no_device;
  const MutexLock guard(driver_mutex);
  if (the_driver.load(std::memory_order_acquire) == nullptr) {
    the_driver.store(new Driver{*load.machine, std::move(devices), ::getpid()},
                     std::memory_order_release);
  }
  return cuda::success;
}

}  // namespace berth::sim

using namespace berth;
using namespace berth::sim;

BERTH_CUDA cuInit(unsigned flags) {
  try {
    return open_driver(BERTH_THIS_CALL, flags);
  } catch (...) {
    return cuda::unknown;
  }
}

extern "C" __attribute__((visibility("default"))) const char* berth_sim_problem() {
  return load_machine().problem;
}

extern "C" __attribute__((visibility("default"))) int berth_sim_problem_is_usage() {
  return load_machine().usage ? 1 : 0;
}
