// The common part of all calls of the simulated NVML: initialisation, versions, handles, faults.
//
// An exported function wraps its own code in one of the on_...() functions:
//   BERTH_NVML nvmlDeviceGetIndex(nvml::Device device, unsigned* index) {
//     return on_unit(BERTH_THIS_CALL, device, [&](const Machine&, const Unit& unit) {...});
//   }
#pragma once

#include <cstring>
#include <string_view>

#include "devices/nvml_abi.h"
#include "sim/machine.h"

#define BERTH_NVML extern "C" __attribute__((visibility("default"))) berth::nvml::Return
#define BERTH_THIS_CALL berth::sim::call_named(__func__)

namespace berth::sim {

// nullptr before nvmlInit and after the last nvmlShutdown.
const Machine* current_machine();
nvml::Return open_session(const Call& call);
nvml::Return close_session();

// Handles encode numbers. They stay the same while the library is loaded, as clients expect, and
// unit_of() recognises all other pointers as invalid.
nvml::Device handle_of(const Unit& unit);
std::optional<Unit> unit_of(const Machine& machine, nvml::Device device);

// The error that a call on `card` must return without doing anything, or success.
nvml::Return check_call(const Machine& machine, const Call& call, std::optional<std::size_t> card);

template <class Body>
nvml::Return on_server(const Call& call, Body&& body) noexcept {
  try {
    const Machine* machine = current_machine();
    if (machine == nullptr) return nvml::uninitialized;
    if (const auto answer = check_call(*machine, call, {}); answer != nvml::success) return answer;
    return body(*machine);
  } catch (...) {  // an exception must not reach a program in C
    return nvml::memory;
  }
}

// For calls that take a card or a MIG instance.
template <class Body>
nvml::Return on_unit(const Call& call, nvml::Device device, Body&& body) noexcept {
  try {
    const Machine* machine = current_machine();
    if (machine == nullptr) return nvml::uninitialized;
    if (!has_call(machine->server().driver_version, call)) return nvml::function_not_found;
    const auto unit = unit_of(*machine, device);
    if (!unit) return nvml::invalid_argument;
    if (const auto answer = check_call(*machine, call, unit->card); answer != nvml::success)
      return answer;
    return body(*machine, *unit);
  } catch (...) {
    return nvml::memory;
  }
}

// For calls that support only whole cards.
template <class Body>
nvml::Return on_card(const Call& call, nvml::Device device, Body&& body) noexcept {
  return on_unit(call, device, [&](const Machine& machine, const Unit& unit) {
    return unit.instance ? nvml::not_supported : body(machine, unit.card);
  });
}

template <class T, class U>
nvml::Return store(T* out, const U& value) {
  if (out == nullptr) return nvml::invalid_argument;
  *out = static_cast<T>(value);
  return nvml::success;
}

nvml::Return store_text(char* out, unsigned length, std::string_view text);
nvml::PciInfo pci_info(const PciAddress& address, std::uint32_t device_id);

// The calls before _v3 have a shorter structure with the same first members (`complete` is false).
nvml::Return store_pci(nvml::PciInfo* out, const nvml::PciInfo& info, bool complete);

}  // namespace berth::sim
