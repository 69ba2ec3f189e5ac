// The state of this host's GPUs, ready to be shown: where devices and, later, the harbour meet.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "broker/gpu_state.h"
#include "devices/probe.h"

namespace berth {

struct GpuStatus {
  Gpu gpu;
  Judgement judgement;
};

struct Status {
  std::string host;
  std::optional<std::string> driver;  // its version
  bool simulated = false;             // these are not real GPUs
  std::vector<GpuStatus> gpus;
};

// Asks the driver once. Errors are the probe's.
Result<Status> observe(Probe& probe, bool simulated);

std::string host_name();

}  // namespace berth
