// Contexts and memory of the simulated CUDA driver; see cuda_context.h.
#include "sim/cuda_context.h"

#include <algorithm>

namespace berth::sim {

Contexts& Contexts::of_this_process() {
  static auto& contexts = *new Contexts;
  return contexts;
}

cuda::Result Contexts::open(const Machine& machine, const Unit& unit, cuda::Device device,
                            cuda::Context* out) {
  const Card& card = machine.card(unit.card);
  if (card.compute_mode == 2) return cuda::device_unavailable;  // prohibited
  auto limits = machine.limits_of(unit);
  limits.exclusive_card = card.compute_mode == 3;  // exclusive-process
  if (limits.exclusive_card && machine.has_stranger_computing(unit.card))
    return cuda::device_unavailable;
  switch (machine.state().add_context(unit, card.context_memory.count, limits)) {
    case StateFile::Outcome::done:
      break;
    case StateFile::Outcome::no_memory:
      return cuda::out_of_memory;
    case StateFile::Outcome::busy:
      return cuda::device_unavailable;
    case StateFile::Outcome::no_slot:
      return cuda::unknown;
  }
  // A handle that is never dereferenced. NOLINTNEXTLINE(performance-no-int-to-ptr)
  *out = reinterpret_cast<cuda::Context>(++last_context_);
  contexts_.emplace(*out, device);
  return cuda::success;
}

void Contexts::close(const Machine& machine, const Unit& unit, cuda::Context context) {
  std::erase_if(allocations_, [&](const auto& entry) {
    if (entry.second.context != context) return false;
    machine.state().remove_memory(unit, entry.second.size);
    return true;
  });
  machine.state().remove_context(unit, machine.card(unit.card).context_memory.count);
  contexts_.erase(context);
}

cuda::Result Contexts::retain_primary(const Machine& machine, const Unit& unit, cuda::Device device,
                                      cuda::Context* out) {
  if (out == nullptr) return cuda::invalid_value;
  const MutexLock guard(mutex_);
  auto found = primaries_.find(device);
  if (found == primaries_.end()) {
    Primary primary{};
    const auto opened = open(machine, unit, device, &primary.context);
    if (opened != cuda::success) return opened;
    found = primaries_.emplace(device, primary).first;
  }
  ++found->second.retained;
  *out = found->second.context;
  return cuda::success;
}

cuda::Result Contexts::release_primary(const Machine& machine, cuda::Device device) {
  const MutexLock guard(mutex_);
  const auto found = primaries_.find(device);
  if (found == primaries_.end()) return cuda::invalid_context;
  if (--found->second.retained > 0) return cuda::success;
  const Driver* driver = current_driver();
  close(machine, driver->devices[static_cast<std::size_t>(device)], found->second.context);
  primaries_.erase(found);
  return cuda::success;
}

bool Contexts::is_primary_active(cuda::Device device) {
  const MutexLock guard(mutex_);
  return primaries_.contains(device);
}

cuda::Result Contexts::create(const Machine& machine, const Unit& unit, cuda::Device device,
                              cuda::Context* out) {
  if (out == nullptr) return cuda::invalid_value;
  const MutexLock guard(mutex_);
  return open(machine, unit, device, out);
}

cuda::Result Contexts::destroy(const Driver& driver, cuda::Context context) {
  const MutexLock guard(mutex_);
  const auto found = contexts_.find(context);
  if (found == contexts_.end()) return cuda::invalid_context;
  const cuda::Device device = found->second;
  const auto primary = primaries_.find(device);
  if (primary != primaries_.end() && primary->second.context == context)
    return cuda::invalid_context;
  close(driver.machine, driver.devices[static_cast<std::size_t>(device)], context);
  return cuda::success;
}

std::optional<cuda::Device> Contexts::device_of(cuda::Context context) {
  const MutexLock guard(mutex_);
  const auto found = contexts_.find(context);
  return found == contexts_.end() ? std::nullopt : std::optional(found->second);
}

bool Contexts::has_context_on(cuda::Device device) {
  const MutexLock guard(mutex_);
  return std::any_of(contexts_.begin(), contexts_.end(),
                     [&](const auto& entry) { return entry.second == device; });
}

cuda::Result Contexts::allocate(const Driver& driver, cuda::Context context, std::size_t size,
                                cuda::DevicePointer* out) {
  if (out == nullptr || size == 0) return cuda::invalid_value;
  const MutexLock guard(mutex_);
  const auto found = contexts_.find(context);
  if (found == contexts_.end()) return cuda::invalid_context;
  const Unit& unit = driver.devices[static_cast<std::size_t>(found->second)];
  const auto outcome =
      driver.machine.state().add_memory(unit, size, driver.machine.limits_of(unit));
  if (outcome != StateFile::Outcome::done) return cuda::out_of_memory;
  constexpr std::uint64_t alignment = 512;
  *out = next_address_;
  next_address_ += (size + alignment - 1) / alignment * alignment;
  allocations_.emplace(*out, Allocation{context, size});
  return cuda::success;
}

cuda::Result Contexts::free(const Driver& driver, cuda::DevicePointer pointer) {
  if (pointer == 0) return cuda::success;
  const MutexLock guard(mutex_);
  const auto found = allocations_.find(pointer);
  if (found == allocations_.end()) return cuda::invalid_value;
  const cuda::Device device = contexts_.at(found->second.context);
  driver.machine.state().remove_memory(driver.devices[static_cast<std::size_t>(device)],
                                       found->second.size);
  allocations_.erase(found);
  return cuda::success;
}

}  // namespace berth::sim
