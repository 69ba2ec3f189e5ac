// The calls of the simulated NVML for event sets. The only event is the loss of a GPU.
#include <algorithm>
#include <map>
#include <memory>
#include <thread>

#include "base/mutex.h"
#include "sim/nvml_session.h"

using namespace berth;
using namespace berth::sim;

namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kSupportedEvents = nvml::kEventXid | nvml::kEventGpuUnavailable;
constexpr std::uint64_t kXidOffTheBus = 79;

struct Registration {
  std::size_t card;
  std::uint64_t mask;
  std::uint64_t reported = 0;  // the events of the current loss that were reported already
};

struct EventSetState {
  Mutex mutex;
  std::vector<Registration> registrations GUARDED_BY(mutex);
};

// Handles are numbers that are never reused, so that a freed one is recognised, even while another
// thread waits on it.
struct EventSetTable {
  Mutex mutex;
  std::uintptr_t last GUARDED_BY(mutex) = 0;
  std::map<nvml::EventSet, std::shared_ptr<EventSetState>> open GUARDED_BY(mutex);
};

EventSetTable& event_sets() {
  static auto& table = *new EventSetTable;
  return table;
}

std::shared_ptr<EventSetState> find_set(nvml::EventSet handle) {
  EventSetTable& table = event_sets();
  const MutexLock guard(table.mutex);
  const auto found = table.open.find(handle);
  return found == table.open.end() ? nullptr : found->second;
}

// The next event that has not been reported.
std::optional<nvml::EventData> next_event(const Machine& machine, EventSetState& set) {
  const MutexLock guard(set.mutex);
  for (Registration& entry : set.registrations) {
    if (!machine.is_lost(entry.card)) {
      entry.reported = 0;
      continue;
    }
    for (const std::uint64_t type : {nvml::kEventXid, nvml::kEventGpuUnavailable}) {
      if ((entry.mask & ~entry.reported & type) == 0) continue;
      entry.reported |= type;
      return nvml::EventData{handle_of({entry.card, {}}), type,
                             type == nvml::kEventXid ? kXidOffTheBus : 0, nvml::kNoInstance,
                             nvml::kNoInstance};
    }
  }
  return {};
}

// The time, at most `most`, during which no loss can happen: the times of faults are known.
std::chrono::nanoseconds time_to_next_loss(const Machine& machine, EventSetState& set,
                                           std::chrono::nanoseconds most) {
  const MutexLock guard(set.mutex);
  const auto now = machine.uptime();
  for (const Registration& entry : set.registrations) {
    if (const auto loss = machine.next_loss(entry.card)) most = std::min(most, *loss - now);
  }
  return std::max(most, std::chrono::nanoseconds{1});
}

nvml::Return wait_for_event(const Machine& machine, nvml::EventSet handle, unsigned milliseconds,
                            nvml::EventData& data) {
  const auto set = find_set(handle);
  if (!set) return nvml::invalid_argument;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds{milliseconds};
  for (;;) {
    if (const auto event = next_event(machine, *set)) {
      data = *event;
      return nvml::success;
    }
    const auto left = end - std::chrono::steady_clock::now();
    if (left <= left.zero()) return nvml::timeout;
    std::this_thread::sleep_for(time_to_next_loss(machine, *set, left));
  }
}

}  // namespace

BERTH_NVML nvmlEventSetCreate(nvml::EventSet* set) {
  return on_server(BERTH_THIS_CALL, [&](const Machine&) {
    if (set == nullptr) return nvml::invalid_argument;
    EventSetTable& table = event_sets();
    const MutexLock guard(table.mutex);
    // Never dereferenced. NOLINTNEXTLINE(performance-no-int-to-ptr)
    const auto handle = reinterpret_cast<nvml::EventSet>(++table.last);
    table.open.emplace(handle, std::make_shared<EventSetState>());
    return store(set, handle);
  });
}

BERTH_NVML nvmlEventSetFree(nvml::EventSet set) {
  return on_server(BERTH_THIS_CALL, [&](const Machine&) {
    EventSetTable& table = event_sets();
    const MutexLock guard(table.mutex);
    return table.open.erase(set) == 1 ? nvml::success : nvml::invalid_argument;
  });
}

BERTH_NVML nvmlDeviceGetSupportedEventTypes(nvml::Device device, std::uint64_t* types) {
  return on_card(BERTH_THIS_CALL, device,
                 [&](const Machine&, std::size_t) { return store(types, kSupportedEvents); });
}

BERTH_NVML nvmlDeviceRegisterEvents(nvml::Device device, std::uint64_t types,
                                    nvml::EventSet handle) {
  return on_card(BERTH_THIS_CALL, device, [&](const Machine&, std::size_t card) {
    const auto set = find_set(handle);
    if (!set) return nvml::invalid_argument;
    if ((types & ~kSupportedEvents) != 0) return nvml::not_supported;
    const MutexLock guard(set->mutex);
    set->registrations.push_back({card, types});
    return nvml::success;
  });
}

BERTH_NVML nvmlEventSetWait(nvml::EventSet set, void* data, unsigned milliseconds) {
  return on_server(BERTH_THIS_CALL, [&](const Machine& machine) {
    if (data == nullptr) return nvml::invalid_argument;
    nvml::EventData event{};
    const auto answer = wait_for_event(machine, set, milliseconds, event);
    // The structure of this version has no instances.
    if (answer == nvml::success) std::memcpy(data, &event, offsetof(nvml::EventData, gpu_instance));
    return answer;
  });
}

BERTH_NVML nvmlEventSetWait_v2(nvml::EventSet set, nvml::EventData* data, unsigned milliseconds) {
  return on_server(BERTH_THIS_CALL, [&](const Machine& machine) {
    return data == nullptr ? nvml::invalid_argument
                           : wait_for_event(machine, set, milliseconds, *data);
  });
}
