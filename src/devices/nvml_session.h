// A session with NVML in this process, opened by the first query and used for all later ones.
//
// A driver can crash, and it can hang so that no signal ends the process. So Berth holds sessions
// only in child processes that it can abandon; see guarded_probe.h.
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
  // `library` is as for load_api(). It is not loaded before the first query.
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
