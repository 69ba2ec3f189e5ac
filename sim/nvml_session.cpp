// Initialisation, handles and faults of the simulated NVML; see nvml_session.h.
#include "sim/nvml_session.h"

#include <atomic>
#include <cstdio>
#include <fmt/format.h>

#include "base/mutex.h"
#include "sim/loader.h"

namespace berth::sim {
namespace {

Mutex session_mutex;
int session_count GUARDED_BY(session_mutex) = 0;
std::atomic<const Machine*> session_machine{nullptr};

// A handle is the address of one of these bytes.
constinit char handles[kMaxCards * kUnitsPerCard] = {};

}  // namespace

const Machine* current_machine() {
  return session_machine.load(std::memory_order_acquire);
}

nvml::Return open_session(const Call& call) {
  const LoadResult load = load_machine();
  if (load.absent) return nvml::driver_not_loaded;
  if (load.machine == nullptr) return nvml::unknown;
  load.machine->state().count_init_call();
  // Without the lock, because a fault may hang here.
  if (const int answer = load.machine->apply_faults(call, {}); answer != 0)
    return static_cast<nvml::Return>(answer);
  const MutexLock guard(session_mutex);
  if (session_count++ == 0) session_machine.store(load.machine, std::memory_order_release);
  return nvml::success;
}

nvml::Return close_session() {
  const MutexLock guard(session_mutex);
  if (session_count == 0) return nvml::uninitialized;
  if (--session_count == 0) session_machine.store(nullptr, std::memory_order_release);
  return nvml::success;
}

nvml::Device handle_of(const Unit& unit) {
  return reinterpret_cast<nvml::Device>(&handles[unit_number(unit)]);
}

std::optional<Unit> unit_of(const Machine& machine, nvml::Device device) {
  const auto first = reinterpret_cast<std::uintptr_t>(&handles[0]);
  // Wraps to a large number if the address is lower.
  const auto number = reinterpret_cast<std::uintptr_t>(device) - first;
  if (number >= sizeof(handles)) return {};
  const std::size_t card = number / kUnitsPerCard;
  const std::size_t place = number % kUnitsPerCard;
  if (card >= machine.server().cards.size()) return {};
  if (place == 0) return Unit{card, {}};
  const auto& instances = machine.card(card).instances;
  if (place > instances.size() || !instances[place - 1]) return {};
  return Unit{card, place - 1};
}

nvml::Return check_call(const Machine& machine, const Call& call, std::optional<std::size_t> card) {
  if (!has_call(machine.server().driver_version, call)) return nvml::function_not_found;
  if (const int answer = machine.apply_faults(call, card); answer != 0)
    return static_cast<nvml::Return>(answer);
  if (card && machine.is_lost(*card)) return nvml::gpu_is_lost;
  return nvml::success;
}

nvml::Return store_text(char* out, unsigned length, std::string_view text) {
  if (out == nullptr) return nvml::invalid_argument;
  if (text.size() + 1 > length) return nvml::insufficient_size;
  std::memcpy(out, text.data(), text.size());
  out[text.size()] = '\0';
  return nvml::success;
}

nvml::PciInfo pci_info(const PciAddress& address, std::uint32_t device_id) {
  nvml::PciInfo info{};
  const auto [domain, bus, device] = address;
  std::snprintf(info.bus_id_legacy, sizeof(info.bus_id_legacy), "%04X:%02X:%02X.0", domain & 0xFFFF,
                bus & 0xFF, device & 0xFF);
  std::snprintf(info.bus_id, sizeof(info.bus_id), "%08X:%02X:%02X.0", domain, bus & 0xFF,
                device & 0xFF);
  info.domain = domain;
  info.bus = bus;
  info.device = device;
  info.pci_device_id = device_id;
  info.pci_subsystem_id = device_id;
  return info;
}

nvml::Return store_pci(nvml::PciInfo* out, const nvml::PciInfo& info, bool complete) {
  if (out == nullptr) return nvml::invalid_argument;
  std::memcpy(out, &info, complete ? sizeof(info) : offsetof(nvml::PciInfo, bus_id));
  return nvml::success;
}

}  // namespace berth::sim

extern "C" __attribute__((visibility("default"))) const char* berth_sim_problem() {
  return berth::sim::load_machine().problem;
}

extern "C" __attribute__((visibility("default"))) int berth_sim_problem_is_usage() {
  return berth::sim::load_machine().usage ? 1 : 0;
}

extern "C" __attribute__((visibility("default"))) unsigned long long berth_sim_init_calls() {
  const berth::sim::Machine* machine = berth::sim::load_machine().machine;
  return machine != nullptr ? machine->state().init_calls() : 0;
}
