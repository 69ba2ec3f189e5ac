// Finding of GPUs that were named; see gpu_arguments.h.
#include "cli/gpu_arguments.h"

#include <utility>

#include "base/terminal.h"
#include "devices/driver.h"
#include "lease/gpu_selection.h"

namespace berth {

Result<std::vector<NamedGpu>> find_gpus(const std::string& list) {
  auto probe = open_driver(print_driver_is_slow);
  if (!probe) return tl::make_unexpected(probe.error());
  const auto snapshot = (*probe)->snapshot();
  if (!snapshot) return tl::make_unexpected(snapshot.error());
  auto uuids = select_gpus(snapshot->gpus, list, Selectable::known);
  if (!uuids) return tl::make_unexpected(uuids.error());
  std::vector<NamedGpu> gpus;
  for (std::string& uuid : *uuids) {
    for (const Gpu& gpu : snapshot->gpus) {
      if (gpu.uuid != uuid) continue;
      gpus.push_back({std::move(uuid), to_string(gpu.index)});
      break;
    }
  }
  return gpus;
}

}  // namespace berth
