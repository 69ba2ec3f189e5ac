// The JSON of `berth status`; see status_json.h. docs/json.md describes it.
#include "cli/output/status_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/users.h"

namespace berth {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json mib_or_null(const std::optional<Bytes>& size) {
  return size ? Json(to_mib(*size)) : Json(nullptr);
}

// A card has a number. A MIG instance has "card:instance", which is no number.
Json index_of(const GpuIndex& index) {
  return index.instance ? Json(to_string(index)) : Json(index.card);
}

Json process_json(const GpuProcess& process) {
  return {{"pid", process.pid},
          {"user", process.uid ? Json(user_name(*process.uid)) : Json(nullptr)},
          {"name", or_null(process.name)},
          {"memory_mib", mib_or_null(process.memory)},
          {"lease", nullptr}};
}

Json gpu_json(const GpuStatus& status) {
  const Gpu& gpu = status.gpu;
  Json processes = Json::array();
  for (const GpuProcess& process : gpu.processes) processes.push_back(process_json(process));
  Json power = nullptr;
  if (gpu.power_w) power = std::round(*gpu.power_w * 10) / 10;
  return {{"index", index_of(gpu.index)},
          {"uuid", or_null(gpu.uuid)},
          {"name", or_null(gpu.name)},
          {"state", to_string(status.judgement.state)},
          {"memory_total_mib", mib_or_null(gpu.memory_total)},
          {"memory_used_mib", mib_or_null(gpu.memory_used)},
          {"utilization_pct", or_null(gpu.utilization_pct)},
          {"memory_utilization_pct", or_null(gpu.memory_utilization_pct)},
          {"temperature_c", or_null(gpu.temperature_c)},
          {"power_w", power},
          {"performance_state", or_null(gpu.performance_state)},
          {"processes", processes},
          {"leases", Json::array()}};
}

// "replace": a name that is not UTF-8 becomes U+FFFD instead of an exception.
std::string dump(const Json& json, JsonForm form) {
  return json.dump(form == JsonForm::pretty ? 2 : -1, ' ', true, Json::error_handler_t::replace) +
         "\n";
}

std::string_view path_of(Proximity proximity) {
  switch (proximity) {
    case Proximity::board:
      return "board";
    case Proximity::pcie_switch:
      return "pcie_switch";
    case Proximity::pcie_switches:
      return "pcie_switches";
    case Proximity::host_bridge:
      return "host_bridge";
    case Proximity::numa_node:
      return "numa_node";
    case Proximity::system:
      return "system";
  }
  return "system";
}

}  // namespace

std::string status_json(const Status& status, JsonForm form) {
  Json gpus = Json::array();
  for (const GpuStatus& gpu : status.gpus) gpus.push_back(gpu_json(gpu));
  return dump({{"host", status.host},
               {"driver", or_null(status.driver)},
               {"gpus", gpus},
               {"queue", Json::array()}},
              form);
}

std::string topology_json(const Topology& topology, JsonForm form) {
  Json connections = Json::array();
  for (const Connection& connection : topology.connections) {
    Json path = nullptr;
    if (connection.proximity) path = path_of(*connection.proximity);
    connections.push_back({{"a", index_of(connection.a)},
                           {"b", index_of(connection.b)},
                           {"nvlinks", or_null(connection.nvlinks)},
                           {"path", path}});
  }
  return dump({{"connections", connections}}, form);
}

}  // namespace berth
