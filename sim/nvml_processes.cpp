// The calls of the simulated NVML for the process lists, in all versions.
#include <chrono>

#include "sim/nvml_session.h"

using namespace berth;
using namespace berth::sim;

namespace {

// The processes that a list of this kind shows for a card or an instance.
std::vector<Process> list_processes(const Machine& machine, const Unit& unit, ProcessKind kind) {
  auto processes = machine.processes_on(unit.card);
  if (kind == ProcessKind::compute) machine.state().count_process_list(unit.card);
  std::erase_if(processes, [&](const Process& process) {
    return process.kind != kind || (unit.instance && process.unit != unit);
  });
  if (!machine.card(unit.card).process_memory) {
    for (Process& process : processes) process.memory.reset();
  }
  return processes;
}

template <class Record>
Record to_record(const Process& process) {
  Record record{};
  record.pid = process.pid;
  record.used_memory = process.memory.value_or(nvml::kMemoryNotAvailable);
  if constexpr (sizeof(Record) > sizeof(nvml::ProcessInfoV1)) {
    const auto& instance = process.unit.instance;
    record.gpu_instance = instance ? static_cast<std::uint32_t>(*instance + 1) : nvml::kNoInstance;
    record.compute_instance = instance ? 0 : nvml::kNoInstance;
  }
  return record;
}

// Fills the caller's array, or returns the required length.
template <class Record>
nvml::Return store_records(const std::vector<Process>& processes, unsigned* count,
                           Record* records) {
  if (count == nullptr || (*count != 0 && records == nullptr)) return nvml::invalid_argument;
  const unsigned room = *count;
  *count = static_cast<unsigned>(processes.size());
  if (room < processes.size()) return nvml::insufficient_size;
  for (std::size_t i = 0; i < processes.size(); ++i) records[i] = to_record<Record>(processes[i]);
  return nvml::success;
}

template <class Record>
nvml::Return store_process_list(const Call& call, nvml::Device device, ProcessKind kind,
                                unsigned* count, Record* records) {
  return on_unit(call, device, [&](const Machine& machine, const Unit& unit) {
    return store_records(list_processes(machine, unit, kind), count, records);
  });
}

// _v3 has the records of _v2, except in drivers whose records are longer than their header says.
nvml::Return store_process_list_v3(const Call& call, nvml::Device device, ProcessKind kind,
                                   unsigned* count, void* records) {
  return on_unit(call, device, [&](const Machine& machine, const Unit& unit) {
    const auto processes = list_processes(machine, unit, kind);
    if (has_wide_process_records(machine.server().driver_version)) {
      return store_records(processes, count, static_cast<nvml::ProcessDetail*>(records));
    }
    return store_records(processes, count, static_cast<nvml::ProcessInfoV2*>(records));
  });
}

}  // namespace

#define BERTH_PROCESS_LISTS(Name, kind)                                                     \
  BERTH_NVML nvmlDeviceGet##Name##RunningProcesses(nvml::Device device, unsigned* count,    \
                                                   nvml::ProcessInfoV1* records) {          \
    return store_process_list(BERTH_THIS_CALL, device, kind, count, records);               \
  }                                                                                         \
  BERTH_NVML nvmlDeviceGet##Name##RunningProcesses_v2(nvml::Device device, unsigned* count, \
                                                      nvml::ProcessInfoV2* records) {       \
    return store_process_list(BERTH_THIS_CALL, device, kind, count, records);               \
  }                                                                                         \
  BERTH_NVML nvmlDeviceGet##Name##RunningProcesses_v3(nvml::Device device, unsigned* count, \
                                                      void* records) {                      \
    return store_process_list_v3(BERTH_THIS_CALL, device, kind, count, records);            \
  }

BERTH_PROCESS_LISTS(Compute, ProcessKind::compute)
BERTH_PROCESS_LISTS(Graphics, ProcessKind::graphics)
BERTH_PROCESS_LISTS(MPSCompute, ProcessKind::mps)

BERTH_NVML nvmlDeviceGetRunningProcessDetailList(nvml::Device device,
                                                 nvml::ProcessDetailList* list) {
  return on_unit(BERTH_THIS_CALL, device, [&](const Machine& machine, const Unit& unit) {
    if (list == nullptr) return nvml::invalid_argument;
    if (list->version != nvml::kProcessDetailListVersion) return nvml::argument_version_mismatch;
    if (list->mode > 2) return nvml::invalid_argument;
    constexpr std::array kinds{ProcessKind::compute, ProcessKind::graphics, ProcessKind::mps};
    return store_records(list_processes(machine, unit, kinds[list->mode]), &list->count,
                         list->processes);
  });
}

BERTH_NVML nvmlDeviceGetProcessUtilization(nvml::Device device,
                                           nvml::ProcessUtilizationSample* samples, unsigned* count,
                                           std::uint64_t last_seen_us) {
  return on_card(BERTH_THIS_CALL, device, [&](const Machine& machine, std::size_t card) {
    if (machine.card(card).mig_mode) return nvml::not_supported;
    if (count == nullptr) return nvml::invalid_argument;
    const auto processes = machine.processes_on(card);
    const auto now = std::chrono::duration_cast<std::chrono::microseconds>(
                         std::chrono::system_clock::now().time_since_epoch())
                         .count();
    const auto timestamp = static_cast<std::uint64_t>(now);
    if (processes.empty() || timestamp <= last_seen_us) return nvml::not_found;
    const unsigned room = *count;
    *count = static_cast<unsigned>(processes.size());
    if (samples == nullptr || room < processes.size()) return nvml::insufficient_size;
    for (std::size_t i = 0; i < processes.size(); ++i) {
      const unsigned percent = processes[i].utilization;
      samples[i] = {processes[i].pid, timestamp, percent, percent / 2, 0, 0};
    }
    return nvml::success;
  });
}
