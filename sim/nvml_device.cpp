// The calls of the simulated NVML for properties and measurements of devices.
#include <fmt/format.h>

#include "sim/nvml_session.h"

using namespace berth;
using namespace berth::sim;

namespace {

constexpr std::uint32_t kPciDeviceId = 0x233010DE;  // NVIDIA's vendor number and one of its cards
constexpr unsigned kHottest = 83;                   // °C at full load
constexpr unsigned kGraphicsClock = 1980;           // MHz at full load
constexpr unsigned kMemoryClock = 2619;
constexpr unsigned kIdleClock = 345;

// A measurement that rises linearly with utilisation, so that tests can predict it.
unsigned between(unsigned idle, unsigned busy, unsigned percent) {
  return idle + (busy > idle ? (busy - idle) * percent / 100 : 0);
}

nvml::Return temperature(const Machine& machine, std::size_t card, auto* out) {
  return store(out,
               between(machine.card(card).temperature_c, kHottest, machine.utilization_of(card)));
}

nvml::Return power_limit(const Machine& machine, std::size_t card, unsigned* out) {
  return store(out, machine.card(card).power_limit_w * 1000);
}

nvml::Return codec_utilization(const Call& call, nvml::Device device, unsigned* percent,
                               unsigned* period_us) {
  return on_card(call, device, [&](const Machine&, std::size_t) {
    const auto answer = store(percent, 0);
    return answer == nvml::success ? store(period_us, 167000) : answer;
  });
}

nvml::Return not_supported_by_any(const Call& call, nvml::Device device) {
  return on_unit(call, device, [](const Machine&, const Unit&) { return nvml::not_supported; });
}

nvml::Return clock_of(unsigned type, unsigned percent, unsigned* out) {
  constexpr unsigned memory = 2;
  if (type > 3) return nvml::invalid_argument;
  return store(out, between(kIdleClock, type == memory ? kMemoryClock : kGraphicsClock, percent));
}

}  // namespace

BERTH_NVML nvmlDeviceGetName(nvml::Device device, char* name, unsigned length) {
  return on_unit(BERTH_THIS_CALL, device, [&](const Machine& machine, const Unit& unit) {
    const Card& card = machine.card(unit.card);
    if (!unit.instance) return store_text(name, length, card.name);
    return store_text(name, length,
                      fmt::format("{} MIG {}", card.name, card.instances[*unit.instance]->name));
  });
}

BERTH_NVML nvmlDeviceGetUUID(nvml::Device device, char* uuid, unsigned length) {
  return on_unit(BERTH_THIS_CALL, device, [&](const Machine& machine, const Unit& unit) {
    const Card& card = machine.card(unit.card);
    return store_text(uuid, length,
                      unit.instance ? card.instances[*unit.instance]->uuid : card.uuid);
  });
}

BERTH_NVML nvmlDeviceGetIndex(nvml::Device device, unsigned* index) {
  return on_unit(BERTH_THIS_CALL, device, [&](const Machine&, const Unit& unit) {
    return store(index, unit.instance.value_or(unit.card));
  });
}

BERTH_NVML nvmlDeviceGetMinorNumber(nvml::Device device, unsigned* minor) {
  return on_card(BERTH_THIS_CALL, device,
                 [&](const Machine&, std::size_t card) { return store(minor, card); });
}

BERTH_NVML nvmlDeviceGetPciInfo(nvml::Device device, nvml::PciInfo* pci) {
  return on_unit(BERTH_THIS_CALL, device, [&](const Machine& machine, const Unit& unit) {
    return store_pci(pci, pci_info(machine.card(unit.card).pci, kPciDeviceId), false);
  });
}
BERTH_NVML nvmlDeviceGetPciInfo_v2(nvml::Device device, nvml::PciInfo* pci) {
  return on_unit(BERTH_THIS_CALL, device, [&](const Machine& machine, const Unit& unit) {
    return store_pci(pci, pci_info(machine.card(unit.card).pci, kPciDeviceId), false);
  });
}
BERTH_NVML nvmlDeviceGetPciInfo_v3(nvml::Device device, nvml::PciInfo* pci) {
  return on_unit(BERTH_THIS_CALL, device, [&](const Machine& machine, const Unit& unit) {
    return store_pci(pci, pci_info(machine.card(unit.card).pci, kPciDeviceId), true);
  });
}

BERTH_NVML nvmlDeviceGetBrand(nvml::Device device, int* brand) {
  constexpr int nvidia = 14;
  return on_unit(BERTH_THIS_CALL, device,
                 [&](const Machine&, const Unit&) { return store(brand, nvidia); });
}

BERTH_NVML nvmlDeviceGetSerial(nvml::Device device, char*, unsigned) {
  return not_supported_by_any(BERTH_THIS_CALL, device);
}

BERTH_NVML nvmlDeviceGetCudaComputeCapability(nvml::Device device, int* major, int* minor) {
  return on_unit(BERTH_THIS_CALL, device, [&](const Machine&, const Unit&) {
    const auto answer = store(major, 9);
    return answer == nvml::success ? store(minor, 0) : answer;
  });
}

BERTH_NVML nvmlDeviceGetMemoryInfo(nvml::Device device, nvml::MemoryV1* memory) {
  return on_unit(BERTH_THIS_CALL, device, [&](const Machine& machine, const Unit& unit) {
    if (machine.card(unit.card).unified_memory) return nvml::not_supported;
    const MemoryUse use = machine.memory_of(unit);
    return store(memory, nvml::MemoryV1{use.total, use.free(), use.reserved + use.used});
  });
}

BERTH_NVML nvmlDeviceGetMemoryInfo_v2(nvml::Device device, nvml::MemoryV2* memory) {
  return on_unit(BERTH_THIS_CALL, device, [&](const Machine& machine, const Unit& unit) {
    if (memory == nullptr) return nvml::invalid_argument;
    if (memory->version != nvml::kMemoryV2Version) return nvml::function_not_found;
    if (machine.card(unit.card).unified_memory) return nvml::not_supported;
    const MemoryUse use = machine.memory_of(unit);
    return store(memory,
                 nvml::MemoryV2{memory->version, use.total, use.reserved, use.free(), use.used});
  });
}

BERTH_NVML nvmlDeviceGetBAR1MemoryInfo(nvml::Device device, nvml::MemoryV1* memory) {
  return on_unit(BERTH_THIS_CALL, device, [&](const Machine& machine, const Unit& unit) {
    const std::uint64_t total = machine.memory_of(unit).total;
    return store(memory, nvml::MemoryV1{total, total, 0});
  });
}

BERTH_NVML nvmlDeviceGetUtilizationRates(nvml::Device device, nvml::Utilization* utilization) {
  return on_card(BERTH_THIS_CALL, device, [&](const Machine& machine, std::size_t card) {
    if (machine.card(card).mig_mode) return nvml::not_supported;
    const unsigned percent = machine.utilization_of(card);
    return store(utilization, nvml::Utilization{percent, percent / 2});
  });
}

BERTH_NVML nvmlDeviceGetEncoderUtilization(nvml::Device device, unsigned* percent,
                                           unsigned* period) {
  return codec_utilization(BERTH_THIS_CALL, device, percent, period);
}
BERTH_NVML nvmlDeviceGetDecoderUtilization(nvml::Device device, unsigned* percent,
                                           unsigned* period) {
  return codec_utilization(BERTH_THIS_CALL, device, percent, period);
}

BERTH_NVML nvmlDeviceGetTemperature(nvml::Device device, int sensor, unsigned* out) {
  return on_card(BERTH_THIS_CALL, device, [&](const Machine& machine, std::size_t card) {
    return sensor == 0 ? temperature(machine, card, out) : nvml::invalid_argument;
  });
}

BERTH_NVML nvmlDeviceGetTemperatureV(nvml::Device device, nvml::TemperatureV1* out) {
  return on_card(BERTH_THIS_CALL, device, [&](const Machine& machine, std::size_t card) {
    if (out == nullptr) return nvml::invalid_argument;
    if (out->version != nvml::kTemperatureVersion) return nvml::argument_version_mismatch;
    return out->sensor == 0 ? temperature(machine, card, &out->temperature)
                            : nvml::invalid_argument;
  });
}

BERTH_NVML nvmlDeviceGetTemperatureThreshold(nvml::Device device, int threshold, unsigned* out) {
  constexpr unsigned shutdown = 95;
  constexpr unsigned slowdown = 90;
  return on_card(BERTH_THIS_CALL, device, [&](const Machine&, std::size_t) {
    return threshold < 2 ? store(out, threshold == 0 ? shutdown : slowdown) : nvml::not_supported;
  });
}

BERTH_NVML nvmlDeviceGetPowerUsage(nvml::Device device, unsigned* out) {
  return on_card(BERTH_THIS_CALL, device, [&](const Machine& machine, std::size_t index) {
    const Card& card = machine.card(index);
    return store(out, between(card.idle_power_w * 1000, card.power_limit_w * 1000,
                              machine.utilization_of(index)));
  });
}
BERTH_NVML nvmlDeviceGetEnforcedPowerLimit(nvml::Device device, unsigned* out) {
  return on_card(BERTH_THIS_CALL, device, [&](const Machine& machine, std::size_t card) {
    return power_limit(machine, card, out);
  });
}
BERTH_NVML nvmlDeviceGetPowerManagementLimit(nvml::Device device, unsigned* out) {
  return on_card(BERTH_THIS_CALL, device, [&](const Machine& machine, std::size_t card) {
    return power_limit(machine, card, out);
  });
}

BERTH_NVML nvmlDeviceGetFanSpeed(nvml::Device device, unsigned* out) {
  return on_card(BERTH_THIS_CALL, device, [&](const Machine& machine, std::size_t card) {
    if (!machine.card(card).fan) return nvml::not_supported;
    return store(out, between(30, 80, machine.utilization_of(card)));
  });
}
BERTH_NVML nvmlDeviceGetFanSpeed_v2(nvml::Device device, unsigned fan, unsigned* out) {
  return on_card(BERTH_THIS_CALL, device, [&](const Machine& machine, std::size_t card) {
    if (!machine.card(card).fan) return nvml::not_supported;
    if (fan != 0) return nvml::invalid_argument;
    return store(out, between(30, 80, machine.utilization_of(card)));
  });
}

BERTH_NVML nvmlDeviceGetPerformanceState(nvml::Device device, int* state) {
  return on_card(BERTH_THIS_CALL, device, [&](const Machine& machine, std::size_t card) {
    return store(state, machine.utilization_of(card) > 0 ? 0 : 8);
  });
}

BERTH_NVML nvmlDeviceGetComputeMode(nvml::Device device, int* mode) {
  return on_unit(BERTH_THIS_CALL, device, [&](const Machine& machine, const Unit& unit) {
    return store(mode, machine.card(unit.card).compute_mode);
  });
}

BERTH_NVML nvmlDeviceGetPersistenceMode(nvml::Device device, int* mode) {
  return on_unit(BERTH_THIS_CALL, device, [&](const Machine& machine, const Unit& unit) {
    return store(mode, machine.card(unit.card).persistence_mode);
  });
}

BERTH_NVML nvmlDeviceGetDisplayMode(nvml::Device device, int* mode) {
  return on_card(BERTH_THIS_CALL, device, [&](const Machine& machine, std::size_t card) {
    return store(mode, machine.card(card).display);
  });
}
BERTH_NVML nvmlDeviceGetDisplayActive(nvml::Device device, int* active) {
  return on_card(BERTH_THIS_CALL, device, [&](const Machine& machine, std::size_t card) {
    return store(active, machine.card(card).display);
  });
}

// Driver models exist only on Windows, and no simulated card has error correction.
BERTH_NVML nvmlDeviceGetDriverModel(nvml::Device device, int*, int*) {
  return not_supported_by_any(BERTH_THIS_CALL, device);
}
BERTH_NVML nvmlDeviceGetDriverModel_v2(nvml::Device device, int*, int*) {
  return not_supported_by_any(BERTH_THIS_CALL, device);
}
BERTH_NVML nvmlDeviceGetEccMode(nvml::Device device, int*, int*) {
  return not_supported_by_any(BERTH_THIS_CALL, device);
}
BERTH_NVML nvmlDeviceGetTotalEccErrors(nvml::Device device, int, int, std::uint64_t*) {
  return not_supported_by_any(BERTH_THIS_CALL, device);
}

BERTH_NVML nvmlDeviceGetClockInfo(nvml::Device device, unsigned type, unsigned* clock) {
  return on_card(BERTH_THIS_CALL, device, [&](const Machine& machine, std::size_t card) {
    return clock_of(type, machine.utilization_of(card), clock);
  });
}
BERTH_NVML nvmlDeviceGetMaxClockInfo(nvml::Device device, unsigned type, unsigned* clock) {
  return on_card(BERTH_THIS_CALL, device,
                 [&](const Machine&, std::size_t) { return clock_of(type, 100, clock); });
}
