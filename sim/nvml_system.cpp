// The calls of the simulated NVML for sessions, versions, process names and device handles.
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/unique_fd.h"
#include "sim/nvml_session.h"

using namespace berth;
using namespace berth::sim;

BERTH_NVML nvmlInit() {
  return open_session(BERTH_THIS_CALL);
}
BERTH_NVML nvmlInit_v2() {
  return open_session(BERTH_THIS_CALL);
}
BERTH_NVML nvmlInitWithFlags(unsigned) {
  return open_session(BERTH_THIS_CALL);
}
BERTH_NVML nvmlShutdown() {
  return on_server(BERTH_THIS_CALL, [](const Machine&) { return close_session(); });
}

extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(nvml::Return code) {
  switch (code) {
    case nvml::success:
      return "The operation was successful";
    case nvml::uninitialized:
      return "Uninitialized";
    case nvml::invalid_argument:
      return "Invalid Argument";
    case nvml::not_supported:
      return "Not Supported";
    case nvml::no_permission:
      return "Insufficient Permissions";
    case nvml::not_found:
      return "Not Found";
    case nvml::insufficient_size:
      return "Insufficient Size";
    case nvml::driver_not_loaded:
      return "Driver Not Loaded";
    case nvml::timeout:
      return "Timeout";
    case nvml::library_not_found:
      return "NVML Shared Library Not Found";
    case nvml::function_not_found:
      return "Function Not Found";
    case nvml::gpu_is_lost:
      return "GPU is lost";
    case nvml::reset_required:
      return "GPU requires reset";
    case nvml::operating_system:
      return "GPU access blocked by the operating system";
    case nvml::lib_rm_version_mismatch:
      return "Driver/library version mismatch";
    case nvml::in_use:
      return "In use by another client";
    case nvml::memory:
      return "Insufficient Memory";
    case nvml::no_data:
      return "No data";
    case nvml::argument_version_mismatch:
      return "Argument version mismatch";
    case nvml::gpu_not_found:
      return "GPU not found";
    case nvml::invalid_state:
      return "Invalid state";
    case nvml::unknown:
      break;
  }
  return "Unknown Error";
}

BERTH_NVML nvmlSystemGetDriverVersion(char* version, unsigned length) {
  return on_server(BERTH_THIS_CALL, [&](const Machine& machine) {
    return store_text(version, length, machine.server().driver_version_text);
  });
}

BERTH_NVML nvmlSystemGetNVMLVersion(char* version, unsigned length) {
  return on_server(BERTH_THIS_CALL, [&](const Machine& machine) {
    const Server& server = machine.server();
    return store_text(version, length,
                      fmt::format("{}.{}", server.cuda_version / 1000, server.driver_version_text));
  });
}

BERTH_NVML nvmlSystemGetCudaDriverVersion(int* version) {
  return on_server(BERTH_THIS_CALL, [&](const Machine& machine) {
    return store(version, machine.server().cuda_version);
  });
}
BERTH_NVML nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return on_server(BERTH_THIS_CALL, [&](const Machine& machine) {
    return store(version, machine.server().cuda_version);
  });
}

BERTH_NVML nvmlSystemGetProcessName(unsigned pid, char* name, unsigned length) {
  return on_server(BERTH_THIS_CALL, [&](const Machine& machine) {
    const auto now = machine.uptime();
    for (const Stranger& stranger : machine.server().strangers) {
      const bool there = stranger.pid == pid && stranger.window.contains(now);
      if (there) return store_text(name, length, stranger.name);
    }
    for (const char* source : {"cmdline", "comm"}) {  // kernel threads have no command line
      const UniqueFd file(
          ::open(fmt::format("/proc/{}/{}", pid, source).c_str(), O_RDONLY | O_CLOEXEC));
      if (!file) return errno == EACCES || errno == EPERM ? nvml::no_permission : nvml::not_found;
      std::array<char, 1024> text{};
      const auto got = ::read(file.get(), text.data(), text.size() - 1);
      const std::string_view first(text.data());  // the program, which ends at the first NUL
      if (got > 0 && !first.empty())
        return store_text(name, length, first.substr(0, first.find('\n')));
    }
    return nvml::not_found;
  });
}

BERTH_NVML nvmlDeviceGetCount(unsigned* count) {
  return on_server(BERTH_THIS_CALL, [&](const Machine& machine) {
    return store(count, machine.server().cards.size());
  });
}
BERTH_NVML nvmlDeviceGetCount_v2(unsigned* count) {
  return on_server(BERTH_THIS_CALL, [&](const Machine& machine) {
    return store(count, machine.server().cards.size());
  });
}

namespace {

// Stores the handle of the first unit for which `matches` is true, or returns a fault of its card.
template <class Predicate>
nvml::Return store_handle(const Call& call, nvml::Device* device, nvml::Return otherwise,
                          Predicate&& matches) {
  const Machine* machine = current_machine();
  if (machine == nullptr) return nvml::uninitialized;
  if (device == nullptr) return nvml::invalid_argument;
  const auto& cards = machine->server().cards;
  const auto answer = [&](const Unit& unit) {
    const auto failure = check_call(*machine, call, unit.card);
    return failure == nvml::success ? store(device, handle_of(unit)) : failure;
  };
  for (std::size_t i = 0; i < cards.size(); ++i) {
    if (matches(cards[i], Unit{i, {}})) return answer(Unit{i, {}});
    for (std::size_t k = 0; k < cards[i].instances.size(); ++k) {
      if (cards[i].instances[k] && matches(cards[i], Unit{i, k})) return answer(Unit{i, k});
    }
  }
  const auto failure = check_call(*machine, call, {});
  return failure == nvml::success ? otherwise : failure;
}

nvml::Return handle_by_index(const Call& call, unsigned index, nvml::Device* device) {
  return store_handle(call, device, nvml::invalid_argument, [&](const Card&, const Unit& unit) {
    return unit.card == index && !unit.instance;
  });
}

nvml::Return handle_by_pci(const Call& call, const char* text, nvml::Device* device) {
  const auto address = text == nullptr ? std::nullopt : parse_pci(text);
  return store_handle(call, device, address ? nvml::not_found : nvml::invalid_argument,
                      [&](const Card& card, const Unit& unit) {
                        return address && card.pci == *address && !unit.instance;
                      });
}

}  // namespace

BERTH_NVML nvmlDeviceGetHandleByIndex(unsigned index, nvml::Device* device) {
  return handle_by_index(BERTH_THIS_CALL, index, device);
}
BERTH_NVML nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml::Device* device) {
  return handle_by_index(BERTH_THIS_CALL, index, device);
}

BERTH_NVML nvmlDeviceGetHandleByUUID(const char* uuid, nvml::Device* device) {
  const std::string_view text(uuid == nullptr ? "" : uuid);
  return store_handle(
      BERTH_THIS_CALL, device, nvml::not_found, [&](const Card& card, const Unit& unit) {
        return text == (unit.instance ? card.instances[*unit.instance]->uuid : card.uuid);
      });
}

BERTH_NVML nvmlDeviceGetHandleByPciBusId(const char* text, nvml::Device* device) {
  return handle_by_pci(BERTH_THIS_CALL, text, device);
}
BERTH_NVML nvmlDeviceGetHandleByPciBusId_v2(const char* text, nvml::Device* device) {
  return handle_by_pci(BERTH_THIS_CALL, text, device);
}
