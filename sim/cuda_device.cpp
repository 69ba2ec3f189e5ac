// The calls of the simulated CUDA driver for versions, errors and properties of devices.
#include <cstring>
#include <fmt/format.h>

#include "sim/cuda_session.h"
#include "sim/loader.h"

using namespace berth;
using namespace berth::sim;

namespace {

struct ErrorText {
  cuda::Result code;
  const char* name;
  const char* text;
};

constexpr std::array kErrors = std::to_array<ErrorText>({
    {cuda::success, "CUDA_SUCCESS", "no error"},
    {cuda::invalid_value, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {cuda::out_of_memory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {cuda::not_initialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {cuda::deinitialized, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {cuda::stub_library, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"},
    {cuda::device_unavailable, "CUDA_ERROR_DEVICE_UNAVAILABLE",
     "CUDA-capable device(s) is/are busy or unavailable"},
    {cuda::no_device, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {cuda::invalid_device, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {cuda::invalid_context, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {cuda::system_driver_mismatch, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "system has unsupported display driver / cuda driver combination"},
    {cuda::unknown, "CUDA_ERROR_UNKNOWN", "unknown error"},
});

cuda::Result store_error(cuda::Result code, const char** out, const char* ErrorText::*member) {
  if (out == nullptr) return cuda::invalid_value;
  for (const ErrorText& error : kErrors) {
    if (error.code == code) return store(out, error.*member);
  }
  *out = nullptr;
  return cuda::invalid_value;
}

// Converts the hex digits of a UUID to bytes.
cuda::Uuid bytes_of(std::string_view uuid) {
  cuda::Uuid out{};
  std::size_t digits = 0;
  for (const char c : uuid.substr(4)) {  // after "GPU-" or "MIG-"
    const int value = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (value < 0) continue;
    if (digits / 2 == sizeof(out.bytes)) break;
    char& byte = out.bytes[digits++ / 2];
    const auto high = static_cast<unsigned>(static_cast<unsigned char>(byte)) << 4;
    byte = static_cast<char>(high | static_cast<unsigned>(value));
  }
  return out;
}

cuda::Result copy_text(char* out, int length, const std::string& text) {
  if (out == nullptr || length <= 0) return cuda::invalid_value;
  const std::size_t room = std::min(text.size(), static_cast<std::size_t>(length) - 1);
  std::memcpy(out, text.data(), room);
  out[room] = '\0';
  return cuda::success;
}

enum Attribute : int {
  max_threads_per_block = 1,
  warp_size = 10,
  clock_rate_khz = 13,
  multiprocessor_count = 16,
  integrated = 18,
  compute_mode = 20,
  ecc_enabled = 32,
  pci_bus = 33,
  pci_device = 34,
  unified_addressing = 41,
  pci_domain = 50,
  capability_major = 75,
  capability_minor = 76,
};

}  // namespace

BERTH_CUDA cuGetErrorName(cuda::Result code, const char** name) {
  return store_error(code, name, &ErrorText::name);
}
BERTH_CUDA cuGetErrorString(cuda::Result code, const char** text) {
  return store_error(code, text, &ErrorText::text);
}

BERTH_CUDA cuDriverGetVersion(int* version) {
  // The only call that does not need cuInit.
  const Driver* driver = current_driver();
  const Machine* machine = driver == nullptr ? load_machine().machine : &driver->machine;
  if (machine == nullptr) return store(version, Server{}.cuda_version);
  if (const int answer = machine->apply_faults(BERTH_THIS_CALL, {}); answer != 0) {
    return static_cast<cuda::Result>(answer);
  }
  return store(version, machine->server().cuda_version);
}

BERTH_CUDA cuDeviceGetCount(int* count) {
  return on_driver(BERTH_THIS_CALL,
                   [&](const Driver& driver) { return store(count, driver.devices.size()); });
}

BERTH_CUDA cuDeviceGet(cuda::Device* device, int ordinal) {
  return on_device(BERTH_THIS_CALL, ordinal,
                   [&](const Machine&, const Unit&) { return store(device, ordinal); });
}

BERTH_CUDA cuDeviceGetName(char* name, int length, cuda::Device device) {
  return on_device(BERTH_THIS_CALL, device, [&](const Machine& machine, const Unit& unit) {
    const Card& card = machine.card(unit.card);
    if (!unit.instance) return copy_text(name, length, card.name);
    return copy_text(name, length,
                     fmt::format("{} MIG {}", card.name, card.instances[*unit.instance]->name));
  });
}

BERTH_CUDA cuDeviceGetUuid(cuda::Uuid* uuid, cuda::Device device) {
  return on_device(BERTH_THIS_CALL, device, [&](const Machine& machine, const Unit& unit) {
    return store(uuid, bytes_of(machine.card(unit.card).uuid));
  });
}
BERTH_CUDA cuDeviceGetUuid_v2(cuda::Uuid* uuid, cuda::Device device) {
  return on_device(BERTH_THIS_CALL, device, [&](const Machine& machine, const Unit& unit) {
    const Card& card = machine.card(unit.card);
    return store(uuid, bytes_of(unit.instance ? card.instances[*unit.instance]->uuid : card.uuid));
  });
}

BERTH_CUDA cuDeviceTotalMem_v2(std::size_t* bytes, cuda::Device device) {
  return on_device(BERTH_THIS_CALL, device, [&](const Machine& machine, const Unit& unit) {
    return store(bytes, machine.memory_of(unit).total);
  });
}

BERTH_CUDA cuDeviceGetAttribute(int* value, int attribute, cuda::Device device) {
  return on_device(BERTH_THIS_CALL, device, [&](const Machine& machine, const Unit& unit) {
    const Card& card = machine.card(unit.card);
    switch (attribute) {
      case max_threads_per_block:
        return store(value, 1024);
      case warp_size:
        return store(value, 32);
      case clock_rate_khz:
        return store(value, 1'980'000);
      case multiprocessor_count:
        return store(value, unit.instance ? 16 : 132);
      case integrated:
        return store(value, card.unified_memory);
      case compute_mode:
        return store(value, card.compute_mode);
      case ecc_enabled:
        return store(value, 0);
      case pci_bus:
        return store(value, card.pci.bus);
      case pci_device:
        return store(value, card.pci.device);
      case pci_domain:
        return store(value, card.pci.domain);
      case unified_addressing:
        return store(value, 1);
      case capability_major:
        return store(value, 9);
      case capability_minor:
        return store(value, 0);
      default:
        return cuda::invalid_value;
    }
  });
}

BERTH_CUDA cuDeviceGetPCIBusId(char* text, int length, cuda::Device device) {
  return on_device(BERTH_THIS_CALL, device, [&](const Machine& machine, const Unit& unit) {
    const auto [domain, bus, slot] = machine.card(unit.card).pci;
    return copy_text(text, length, fmt::format("{:04X}:{:02X}:{:02X}.0", domain, bus, slot));
  });
}

BERTH_CUDA cuDeviceGetByPCIBusId(cuda::Device* device, const char* text) {
  return on_driver(BERTH_THIS_CALL, [&](const Driver& driver) {
    const auto address = text == nullptr ? std::nullopt : parse_pci(text);
    if (!address) return cuda::invalid_value;
    for (std::size_t i = 0; i < driver.devices.size(); ++i) {
      if (driver.machine.card(driver.devices[i].card).pci == *address) return store(device, i);
    }
    return cuda::invalid_device;
  });
}
