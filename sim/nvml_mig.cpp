// The calls of the simulated NVML for MIG instances.
#include "sim/nvml_session.h"

using namespace berth;
using namespace berth::sim;

BERTH_NVML nvmlDeviceGetMigMode(nvml::Device device, unsigned* current, unsigned* pending) {
  return on_card(BERTH_THIS_CALL, device, [&](const Machine& machine, std::size_t card) {
    if (!machine.card(card).mig_mode) return nvml::not_supported;
    const auto answer = store(current, 1);
    return answer == nvml::success ? store(pending, 1) : answer;
  });
}

BERTH_NVML nvmlDeviceIsMigDeviceHandle(nvml::Device device, unsigned* is_instance) {
  return on_unit(BERTH_THIS_CALL, device, [&](const Machine&, const Unit& unit) {
    return store(is_instance, unit.instance.has_value());
  });
}

BERTH_NVML nvmlDeviceGetGpuInstanceId(nvml::Device device, unsigned* id) {
  return on_unit(BERTH_THIS_CALL, device, [&](const Machine&, const Unit& unit) {
    return unit.instance ? store(id, *unit.instance + 1) : nvml::not_supported;
  });
}

BERTH_NVML nvmlDeviceGetComputeInstanceId(nvml::Device device, unsigned* id) {
  return on_unit(BERTH_THIS_CALL, device, [&](const Machine&, const Unit& unit) {
    return unit.instance ? store(id, 0) : nvml::not_supported;
  });
}

BERTH_NVML nvmlDeviceGetMaxMigDeviceCount(nvml::Device device, unsigned* count) {
  return on_card(BERTH_THIS_CALL, device, [&](const Machine& machine, std::size_t card) {
    return store(count, machine.card(card).mig_mode ? kMaxInstances : 0);
  });
}

BERTH_NVML nvmlDeviceGetMigDeviceHandleByIndex(nvml::Device device, unsigned index,
                                               nvml::Device* instance) {
  return on_card(BERTH_THIS_CALL, device, [&](const Machine& machine, std::size_t card) {
    const auto& instances = machine.card(card).instances;
    if (!machine.card(card).mig_mode) return nvml::not_supported;
    if (index >= kMaxInstances) return nvml::invalid_argument;
    if (index >= instances.size() || !instances[index]) return nvml::not_found;
    return store(instance, handle_of({card, index}));
  });
}

BERTH_NVML nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvml::Device instance,
                                                        nvml::Device* device) {
  return on_unit(BERTH_THIS_CALL, instance, [&](const Machine&, const Unit& unit) {
    return unit.instance ? store(device, handle_of({unit.card, {}})) : nvml::invalid_argument;
  });
}
