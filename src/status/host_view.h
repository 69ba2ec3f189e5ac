// The GPUs of a host together with their leases: the driver's snapshot joined with the harbour.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "devices/gpu.h"
#include "harbour/drain.h"
#include "harbour/record.h"
#include "schedule/plan.h"
#include "status/attribution.h"

namespace berth {

struct GpuWithLeases {
  Gpu gpu;
  std::vector<AttributedProcess> processes;
  std::vector<std::string> leases;   // ids of the leases that hold the GPU or a part of it
  std::optional<Drain> drain;        // set: the GPU is out of service
  bool shared = false;               // no lease holds the whole GPU
  std::optional<Bytes> unexplained;  // see unexplained_memory()

  bool has_lease(const std::string& id) const {
    return std::find(leases.begin(), leases.end(), id) != leases.end();
  }
};

struct HostView {
  std::vector<GpuWithLeases> gpus;
  // The leases that take up GPUs. A lease inside another lease does so once the outer lease has
  // ended.
  std::vector<Record> leases;
  std::vector<Record> tickets{};  // the tickets that were read; messages name their owners
};

// Joins the snapshot with the leases and drains, and attributes each process to its lease.
HostView make_host_view(const Snapshot& snapshot, const std::vector<Record>& leases,
                        const std::vector<Drain>& drains);

// The input for the scheduler, without tickets. Leaves lost GPUs out: waiting does not bring them
// back.
PlanInput make_plan_input(const HostView& view, const Topology& topology, TimePoint now);

// True if the GPU has the name, size and UUID that the request asks for, whatever uses it now.
bool matches(const Gpu& gpu, const Request& request);

// The ticket as the scheduler needs it. `stopped`: the scheduler passes over it.
QueuedTicket make_queued_ticket(const Record& ticket, bool stopped);

}  // namespace berth
