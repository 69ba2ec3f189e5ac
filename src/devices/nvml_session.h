// A session with NVML in this process: opened once, asked as often as one likes.
//
// A driver can hang, even where no signal ends it, and it can crash. So berth itself holds a
// session only in a child process that it can leave behind: see guarded_probe.h.
#pragma once

#include <optional>
#include <string>

#include "devices/nvml_api.h"
#include "devices/nvml_processes.h"
#include "devices/probe.h"
#include "devices/process_table.h"

namespace berth {

class NvmlSession final : public Probe {
 public:
  // `library`: what to load, as for load_api(). Nothing is loaded before the first question.
  explicit NvmlSession(std::string library) : library_(std::move(library)) {}

  Result<Snapshot> snapshot() override;
  Result<Topology> topology() override;
  Result<std::vector<GpuSample>> sample(const std::vector<std::string>& uuids) override;

 private:
  Result<void> open();
  Result<unsigned> card_count();

  std::string library_;
  std::optional<nvml::Api> api_;
  std::optional<std::string> driver_version_;
  nvml::ListLayout layout_;
  ProcessMemoryReader process_memory_;
};

}  // namespace berth
