// Reads one device through NVML; see nvml_gpu.h.
#include "devices/nvml_gpu.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fstream>
#include <string_view>

#include "base/text.h"

namespace berth::nvml {
namespace {

constexpr unsigned kMaxTextLength = 96;

// Calls NVML's functions for one device, and sets the GPU's health by their answers.
class DeviceReader {
 public:
  DeviceReader(const Api& api, Device device, Gpu& gpu) : api_(api), device_(device), gpu_(gpu) {}

  // True if `function` exists and succeeded. A missing value is not a fault. Any call may report
  // that the GPU has fallen off the bus.
  template <class... Parameters, class... Arguments>
  bool query(Return (*function)(Device, Parameters...), Arguments... arguments) {
    if (function == nullptr || gpu_.health == Health::lost) return false;
    last_answer_ = function(device_, arguments...);
    if (last_answer_ == gpu_is_lost || last_answer_ == reset_required) record_failure(last_answer_);
    return last_answer_ == success;
  }

  Return last_answer() const { return last_answer_; }

  // For calls that succeed on every healthy GPU: some drivers answer "unknown error" for a lost
  // one.
  void record_failure(Return answer) {
    const bool lost = answer == gpu_is_lost || answer == reset_required || answer == unknown;
    if (gpu_.health == Health::lost) return;
    gpu_.health = lost ? Health::lost : Health::unreadable;
    if (answer == reset_required) {
      gpu_.problem = "the driver requires a reset (sudo nvidia-smi --gpu-reset)";
    } else if (lost) {
      gpu_.problem =
          "the driver has lost contact; see the kernel log (dmesg | grep Xid), then reboot";
    } else if (answer == no_permission) {
      gpu_.problem = "the driver denies access; ask the administrator of this host";
    } else {
      gpu_.problem = fmt::format("the driver does not report whether the GPU is in use ({})",
                                 describe_error(api_, answer));
    }
  }

 private:
  const Api& api_;
  Device device_;
  Gpu& gpu_;
  Return last_answer_ = success;
};

std::string to_text(const std::array<char, kMaxTextLength>& buffer) {
  const auto end = std::find(buffer.begin(), buffer.end(), '\0');
  return {buffer.begin(), end};
}

void read_identity(const Api& api, DeviceReader& reader, Gpu& gpu) {
  std::array<char, kMaxTextLength> buffer{};
  if (reader.query(api.uuid, buffer.data(), kMaxTextLength)) gpu.uuid = to_text(buffer);
  buffer.fill('\0');
  if (reader.query(api.name, buffer.data(), kMaxTextLength)) gpu.name = to_text(buffer);
}

void read_memory(const Api& api, DeviceReader& reader, Gpu& gpu) {
  MemoryV2 v2{};
  v2.version = kMemoryV2Version;
  if (reader.query(api.memory_v2, &v2)) {
    gpu.memory_total = Bytes{v2.total};
    gpu.memory_used = Bytes{v2.used};
    return;
  }
  MemoryV1 v1{};
  if (reader.query(api.memory_v1, &v1)) {
    gpu.memory_total = Bytes{v1.total};
    gpu.memory_used = Bytes{v1.used};
    gpu.memory_used_counts_reserved = true;
  } else if (reader.last_answer() == not_supported) {
    gpu.memory_is_hosts = true;  // provisional: see read_host_memory()
  } else {
    reader.record_failure(reader.last_answer());
  }
}

// A GPU without memory of its own (GB10, Jetson Thor) uses the host's: MemTotal, of which
// MemAvailable can still be allocated. NVML has no call that tells an integrated GPU from a card.
// Only CUDA has an attribute for it, which would cost a CUDA session at each start. So this
// function infers it: the memory calls are not supported although the lists of processes work, and
// the GPU is the only one of its host. On a host with several cards, one whose driver does not
// support the memory calls may have memory of its own, of unknown size. A MIG instance is always a
// part of a card with memory.
void read_host_memory(const HostContext& host, Gpu& gpu) {
  gpu.memory_is_hosts = gpu.memory_is_hosts && host.may_use_host_memory && gpu.health == Health::ok;
  if (!gpu.memory_is_hosts) return;
  std::ifstream file("/proc/meminfo");
  std::optional<std::uint64_t> total;
  std::optional<std::uint64_t> available;
  std::string key;
  std::string line;
  while (file >> key && (!total || !available)) {
    std::uint64_t kib = 0;
    if (key == "MemTotal:" && file >> kib) total = kib << 10;
    if (key == "MemAvailable:" && file >> kib) available = kib << 10;
    std::getline(file, line);
  }
  if (!total || !available) return;
  gpu.memory_total = Bytes{*total};
  gpu.memory_used = Bytes{*total - std::min(*total, *available)};
}

void read_utilization(const Api& api, DeviceReader& reader, Gpu& gpu) {
  Utilization utilization{};
  if (!reader.query(api.utilization, &utilization)) return;
  gpu.utilization_pct = utilization.gpu;
  gpu.memory_utilization_pct = utilization.memory;
}

void read_power(const Api& api, DeviceReader& reader, Gpu& gpu) {
  unsigned milliwatts = 0;
  if (reader.query(api.power_usage, &milliwatts)) gpu.power_w = milliwatts / 1000.0;
}

void read_measurements(const Api& api, DeviceReader& reader, Gpu& gpu) {
  unsigned value = 0;
  if (reader.query(api.temperature, 0, &value)) gpu.temperature_c = value;
  read_power(api, reader, gpu);
  int number = 0;
  if (reader.query(api.performance_state, &number) && number >= 0 && number < 16) {
    gpu.performance_state = static_cast<unsigned>(number);
  }
  if (reader.query(api.display_active, &number)) gpu.display_active = number != 0;
  if (reader.query(api.compute_mode, &number)) {
    gpu.compute_mode = number == compute_prohibited          ? ComputeMode::prohibited
                       : number == compute_exclusive_process ? ComputeMode::exclusive_process
                                                             : ComputeMode::shared;
  }
}

// For a process that /proc does not show: the file name of its program, as the driver reports it.
std::optional<std::string> name_from_driver(const Api& api, std::int64_t pid) {
  std::array<char, 1024> buffer{};
  if (api.process_name == nullptr) return std::nullopt;
  if (api.process_name(static_cast<unsigned>(pid), buffer.data(), buffer.size()) != success) {
    return std::nullopt;
  }
  std::string_view name(buffer.data(), ::strnlen(buffer.data(), buffer.size()));
  name = name.substr(0, name.find(' '));
  const auto slash = name.rfind('/');
  if (slash != std::string_view::npos) name.remove_prefix(slash + 1);
  if (name.empty()) return std::nullopt;
  return std::string(name);
}

// Sets the GPU's processes. If a list is missing, health says so: then they may not be all.
void read_gpu_processes(const Api& api, DeviceReader& reader, Device device, HostContext& host,
                        Gpu& gpu) {
  if (gpu.health == Health::lost) return;
  ProcessListResult result = read_processes(api, device, host.layout);
  gpu.processes = std::move(result.processes);
  for (GpuProcess& process : gpu.processes) {
    if (!host.processes.identify(process)) process.name = name_from_driver(api, process.pid);
  }
  if (result.compute != success) reader.record_failure(result.compute);
  // "unknown error" for the other lists does not prove that the GPU is lost.
  if (result.optional_lists != success) {
    reader.record_failure(result.optional_lists == unknown ? not_supported : result.optional_lists);
  }
}

}  // namespace

Gpu read_gpu(const Api& api, Device device, GpuIndex index, HostContext& host) {
  Gpu gpu;
  gpu.index = index;
  DeviceReader reader(api, device, gpu);
  read_identity(api, reader, gpu);
  read_memory(api, reader, gpu);
  read_utilization(api, reader, gpu);
  read_measurements(api, reader, gpu);
  read_gpu_processes(api, reader, device, host, gpu);
  read_host_memory(host, gpu);
  return gpu;
}

GpuSample read_sample(const Api& api, Device device, HostContext& host) {
  Gpu gpu;
  DeviceReader reader(api, device, gpu);
  read_memory(api, reader, gpu);
  read_utilization(api, reader, gpu);
  read_power(api, reader, gpu);
  read_gpu_processes(api, reader, device, host, gpu);
  read_host_memory(host, gpu);
  return {"",
          gpu.memory_total,
          gpu.memory_used,
          gpu.utilization_pct,
          gpu.power_w,
          std::move(gpu.processes),
          gpu.health == Health::ok,
          gpu.memory_is_hosts,
          gpu.health == Health::lost};
}

Gpu make_unreadable_gpu(const Api& api, Return answer, GpuIndex index) {
  Gpu gpu;
  gpu.index = index;
  DeviceReader(api, nullptr, gpu).record_failure(answer);
  return gpu;
}

}  // namespace berth::nvml
