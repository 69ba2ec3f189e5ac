// What one decision knows: the driver's snapshot and the harbour's leases, brought together.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "devices/gpu.h"
#include "harbour/drain.h"
#include "harbour/record.h"
#include "schedule/plan.h"

namespace berth {

// A process on a GPU, and the lease that it runs under.
struct PlacedProcess {
  GpuProcess process;
  std::string lease;  // empty: none
  // Computes here without a lease. Displays do not: the one card that also drives the screen must
  // stay usable.
  bool stranger() const { return process.kind == ProcessKind::compute && lease.empty(); }
};

struct PlacedGpu {
  Gpu gpu;
  std::vector<PlacedProcess> processes;
  std::vector<std::string> leases;  // ids of those that hold it, or a part of it
  std::string drained;              // the reason; empty: it is in service
  bool shared = false;              // of its leases, none has it whole
  // Held by processes that the driver does not list, beyond what an idle driver keeps for itself.
  std::optional<Bytes> unexplained;
};

struct Scene {
  std::vector<PlacedGpu> gpus;
  std::vector<Record> leases;  // those that were not carved out of another that is alive
};

// Attributes every process, once.
Scene make_scene(const Snapshot& snapshot, std::vector<Record> leases,
                 const std::vector<Drain>& drains);

// The same as the scheduler wants it. GPUs that are lost are left out: they do not come back by
// waiting.
PlanInput plan_input(const Scene& scene, const Topology& topology, TimePoint now);

}  // namespace berth
