// Opens NVML and reads all devices; see nvml_session.h.
#include "devices/nvml_session.h"

#include <array>
#include <fmt/format.h>
#include <vector>

#include "base/text.h"
#include "devices/nvml_gpu.h"
#include "devices/nvml_topology.h"

namespace berth {
namespace {

using nvml::Return;

// The error for a driver that does not start.
Error make_start_error(const nvml::Api& api, Return answer) {
  const char* problem = api.sim_problem == nullptr ? nullptr : api.sim_problem();
  if (problem != nullptr) {
    const bool usage = api.sim_problem_is_usage != nullptr && api.sim_problem_is_usage() != 0;
    return {usage ? ErrorKind::usage : ErrorKind::no_driver, printable(problem)};
  }
  switch (answer) {
    case nvml::driver_not_loaded:
      return {ErrorKind::no_driver,
              "the NVIDIA driver is installed but not loaded; load it (sudo modprobe nvidia), or "
              "reboot"};
    case nvml::lib_rm_version_mismatch:
      return {
          ErrorKind::no_driver,
          "the NVIDIA driver in the kernel and its library have different versions, as during an "
          "upgrade (running jobs continue); reboot this host, or reload the nvidia modules"};
    case nvml::no_permission:
      return {ErrorKind::no_driver,
              "no permission to use the NVIDIA driver: this user cannot open /dev/nvidiactl; ask "
              "the administrator of this host (often the group video is needed)"};
    case nvml::operating_system:
      return {ErrorKind::no_driver,
              "the operating system (a container or a cgroup) blocks access to the NVIDIA driver; "
              "start the container with its GPUs (docker run --gpus all)"};
    case nvml::gpu_is_lost:
    case nvml::reset_required:
      return {ErrorKind::no_driver,
              "the NVIDIA driver has lost a GPU and does not start; see the kernel log (dmesg | "
              "grep Xid), then reboot"};
    default:
      return {ErrorKind::no_driver,
              fmt::format("the NVIDIA driver does not start: {} (NVML error {}); see the kernel "
                          "log (dmesg | grep NVRM)",
                          nvml::describe_error(api, answer), static_cast<int>(answer))};
  }
}

// Whether the card is partitioned into MIG instances, or the driver's error.
tl::expected<bool, Return> is_mig_enabled(const nvml::Api& api, nvml::Device device) {
  if (api.mig_mode == nullptr || api.mig_max_count == nullptr || api.mig_by_index == nullptr) {
    return false;
  }
  unsigned current = 0;
  unsigned pending = 0;
  const Return answer = api.mig_mode(device, &current, &pending);
  if (answer == nvml::not_supported || answer == nvml::function_not_found) return false;
  if (answer != nvml::success) return tl::make_unexpected(answer);
  return current == 1;
}

// Appends each MIG instance as a GPU of its own; the card itself cannot be used in MIG mode.
void append_instances(const nvml::Api& api, nvml::Device card, unsigned card_index,
                      nvml::HostContext& host, std::vector<Gpu>& gpus) {
  const GpuIndex whole{card_index, std::nullopt};
  host.may_use_host_memory = false;  // a card with MIG has memory of its own
  unsigned count = 0;
  if (const Return answer = api.mig_max_count(card, &count); answer != nvml::success) {
    gpus.push_back(nvml::make_unreadable_gpu(api, answer, whole));
    return;
  }
  const auto before = gpus.size();
  for (unsigned i = 0; i < count; ++i) {
    nvml::Device instance = nullptr;
    const Return answer = api.mig_by_index(card, i, &instance);
    if (answer == nvml::not_found) continue;  // a gap: instances may be destroyed in any order
    if (answer != nvml::success) {            // one entry stands for the remaining instances
      gpus.push_back(nvml::make_unreadable_gpu(api, answer, whole));
      return;
    }
    gpus.push_back(nvml::read_gpu(api, instance, {card_index, i}, host));
  }
  if (gpus.size() == before) {
    gpus.push_back(nvml::read_gpu(api, card, whole, host));
    gpus.back().mig_without_instances = true;
  }
}

void append_card(const nvml::Api& api, unsigned card_index, nvml::HostContext& host,
                 std::vector<Gpu>& gpus) {
  const GpuIndex index{card_index, std::nullopt};
  nvml::Device device = nullptr;
  const Return opened = api.device_by_index(card_index, &device);
  if (opened != nvml::success || device == nullptr) {
    gpus.push_back(nvml::make_unreadable_gpu(api, opened, index));
    return;
  }
  const auto mig = is_mig_enabled(api, device);
  if (!mig) {
    gpus.push_back(nvml::make_unreadable_gpu(api, mig.error(), index));
  } else if (*mig) {
    append_instances(api, device, card_index, host, gpus);
  } else {
    gpus.push_back(nvml::read_gpu(api, device, index, host));
  }
}

}  // namespace

Result<void> NvmlSession::open() {
  if (api_) return {};
  const nvml::Api api = TRY(nvml::load_api(library_));
  if (const Return answer = api.init(); answer != nvml::success) {
    return tl::make_unexpected(make_start_error(api, answer));
  }
  std::array<char, 81> version{};
  if (api.driver_version(version.data(), 80) == nvml::success) driver_version_ = version.data();
  layout_ = nvml::detect_list_layout(driver_version_.value_or(""));
  api_ = api;
  return {};
}

// Also opens the session.
Result<unsigned> NvmlSession::card_count() {
  TRY(open());
  unsigned count = 0;
  if (const Return answer = api_->device_count(&count); answer != nvml::success) {
    return tl::make_unexpected(make_start_error(*api_, answer));
  }
  return count;
}

Result<Snapshot> NvmlSession::snapshot() {
  const unsigned count = TRY(card_count());
  Snapshot snapshot;
  snapshot.driver_version = driver_version_;
  nvml::HostContext host{layout_, count == 1};
  for (unsigned i = 0; i < count; ++i) append_card(*api_, i, host, snapshot.gpus);
  process_memory_.read_into(snapshot.gpus);
  return snapshot;
}

Result<std::vector<GpuSample>> NvmlSession::sample(const std::vector<std::string>& uuids) {
  TRY(open());
  unsigned count = 0;
  const bool single_card = api_->device_count(&count) == nvml::success && count == 1;
  std::vector<GpuSample> samples;
  nvml::HostContext host{layout_};
  for (const std::string& uuid : uuids) {
    host.may_use_host_memory = single_card && !uuid.starts_with("MIG-");
    nvml::Device device = nullptr;
    const auto answer = api_->device_by_uuid != nullptr
                            ? api_->device_by_uuid(uuid.c_str(), &device)
                            : nvml::function_not_found;
    samples.push_back(answer == nvml::success ? nvml::read_sample(*api_, device, host)
                                              : GpuSample{});
    samples.back().uuid = uuid;
    if (answer == nvml::gpu_is_lost) samples.back().lost = true;
  }
  process_memory_.read_into(samples);
  return samples;
}

Result<Topology> NvmlSession::topology() {
  const unsigned count = TRY(card_count());
  return nvml::read_topology(*api_, count);
}

}  // namespace berth
