// What one decision knows: the driver's snapshot and the harbour's leases, brought together.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "devices/gpu.h"
#include "harbour/drain.h"
#include "harbour/record.h"
#include "schedule/plan.h"

namespace berth {

// A process on a GPU, and the lease that it runs under.
struct AttributedProcess {
  GpuProcess process;
  std::string lease;    // empty: none
  bool daemon = false;  // one of the driver's own; see is_driver_daemon()
  // Computes here without a lease. Displays and the driver's daemons do not: the card that also
  // drives the screen, or has an MPS server, must stay usable.
  bool is_stranger() const {
    return process.kind == ProcessKind::compute && lease.empty() && !daemon;
  }
};

struct GpuWithLeases {
  Gpu gpu;
  std::vector<AttributedProcess> processes;
  std::vector<std::string> leases;  // ids of those that hold it, or a part of it
  std::optional<Drain> drain;       // taken out of service by somebody
  bool shared = false;              // of its leases, none has it whole
  // Held by processes that the driver does not list, beyond what an idle driver keeps for itself.
  std::optional<Bytes> unexplained;
};

struct HostView {
  std::vector<GpuWithLeases> gpus;
  // Those that take up GPUs. A lease inside another one does once that other has ended.
  std::vector<Record> leases;
  std::vector<Record> tickets{};  // those that were looked at, to name who came first
};

// Attributes every process, once.
HostView attribute_processes(const Snapshot& snapshot, const std::vector<Record>& leases,
                             const std::vector<Drain>& drains);

// The same as the scheduler wants it. GPUs that are lost are left out: they do not come back by
// waiting.
PlanInput make_plan_input(const HostView& view, const Topology& topology, TimePoint now);

// Is it of the right name, size and UUID, whatever goes on there now?
bool matches(const Gpu& gpu, const Request& request);

// What the scheduler is to know of a ticket.
QueuedTicket make_queued_ticket(const Record& ticket, bool stopped);

}  // namespace berth
