// Finds the GPUs that a user names; see gpu_arguments.h.
#include "cli/gpu_arguments.h"

#include <memory>
#include <utility>

#include "base/terminal.h"
#include "base/text.h"
#include "devices/driver.h"
#include "lease/gpu_list.h"

namespace berth {

Result<std::vector<NamedGpu>> find_gpus(const std::string& list) {
  const std::unique_ptr<Probe> probe = TRY(open_driver(print_driver_is_slow));
  const Snapshot snapshot = TRY(probe->snapshot());
  std::vector<std::string> uuids = TRY(select_gpus(snapshot.gpus, list, Selectable::known));
  std::vector<NamedGpu> gpus;
  for (std::string& uuid : uuids) {
    for (const Gpu& gpu : snapshot.gpus) {
      if (gpu.uuid != uuid) continue;
      gpus.push_back({std::move(uuid), to_string(gpu.index)});
      break;
    }
  }
  return gpus;
}

Result<std::vector<NamedGpu>> find_gpus(const std::vector<std::string>& words) {
  return find_gpus(TRY(join_gpu_list(words)));
}

Json index_json(const NamedGpu& gpu) {
  if (gpu.index == gpu.uuid) return nullptr;
  const auto card = parse_integer<unsigned>(gpu.index);
  return card ? Json(*card) : Json(gpu.index);
}

}  // namespace berth
