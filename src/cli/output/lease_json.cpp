// Writes a new lease as JSON; see lease_json.h.
#include "cli/output/lease_json.h"

#include <string>
#include <utility>

namespace berth {

Json lease_json(const Lease& lease) {
  Json indices = Json::array();
  for (const std::string& uuid : lease.record().uuids) {
    for (const Gpu& gpu : lease.host_gpus()) {
      if (gpu.uuid != uuid) continue;
      if (gpu.index.instance) {
        indices.push_back(to_string(gpu.index));
      } else {
        indices.push_back(gpu.index.card);
      }
    }
  }
  return {{"lease", lease.id()}, {"gpus", lease.record().uuids}, {"indices", std::move(indices)}};
}

}  // namespace berth
