// The JSON of `berth status`; see status_json.h. docs/json.md describes it.
#include "status/status_json.h"

#include <algorithm>
#include <ctime>
#include <fmt/chrono.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/users.h"

namespace berth {
namespace {

// A card has a number. A MIG instance has "card:instance", which is no number.
Json index_of(const GpuIndex& index) {
  return index.instance ? Json(to_string(index)) : Json(index.card);
}

Json process_json(const AttributedProcess& placed) {
  const GpuProcess& process = placed.process;
  return {{"pid", process.pid},
          {"user", process.uid ? Json(user_name(*process.uid)) : Json(nullptr)},
          {"name", or_null(process.name)},
          {"memory_mib", mib_or_null(process.memory)},
          {"lease", placed.lease.empty() ? Json(nullptr) : Json(placed.lease)}};
}

Json lease_json(const Record& lease, const JsonExtent& extent) {
  const TimePoint now = std::chrono::system_clock::now();
  const auto idle = idle_since(lease, now);
  return {{"id", lease.id},
          {"user", user_name(lease.uid)},
          {"pid", lease.pid},
          {"holder", lease.holder == HolderKind::shell ? "shell" : "job"},
          {"command", command_or_null(lease.command, user_name(lease.uid), extent.commands_of)},
          {"label", lease.label},
          {"since", iso_time(lease.granted)},
          {"exclusive", !lease.request.memory},
          {"memory_mib", mib_or_null(lease.request.memory)},
          {"job", lease.job.empty() ? Json(nullptr) : Json(lease.job)},
          {"idle_s", idle ? Json(std::chrono::floor<std::chrono::seconds>(now - *idle).count())
                          : Json(nullptr)}};
}

Json ticket_json(const TicketStatus& ticket, const JsonExtent& extent) {
  const Record& record = ticket.record;
  return {{"ticket", record.id},
          {"position", ticket.position},
          {"user", user_name(record.uid)},
          {"pid", record.pid},
          {"command", command_or_null(record.command, user_name(record.uid), extent.commands_of)},
          {"label", record.label},
          {"since", iso_time(record.since)},
          {"count", record.request.count},
          {"memory_mib", mib_or_null(record.request.memory)},
          {"reason", ticket.reason},
          {"starts", ticket.starts ? Json(iso_time(*ticket.starts)) : Json(nullptr)}};
}

Json queue_array(const Status& status, const JsonExtent& extent = {}) {
  Json queue = Json::array();
  for (const TicketStatus& ticket : status.queue) {
    if (extent.tickets && queue.size() >= *extent.tickets) break;
    queue.push_back(ticket_json(ticket, extent));
  }
  return queue;
}

Json gpu_json(const GpuStatus& one, const Status& status, const JsonExtent& extent) {
  const Gpu& gpu = one.placed.gpu;
  Json processes = Json::array();
  for (const AttributedProcess& process : one.placed.processes) {
    processes.push_back(process_json(process));
  }
  Json leases = Json::array();
  for (const Record& lease : status.leases) {
    const auto& here = one.placed.leases;
    if (std::find(here.begin(), here.end(), lease.id) != here.end()) {
      leases.push_back(lease_json(lease, extent));
    }
  }
  Json power = nullptr;
  if (gpu.power_w) power = static_cast<double>(rounded(*gpu.power_w * 10)) / 10;
  return {{"index", index_of(gpu.index)},
          {"uuid", or_null(gpu.uuid)},
          {"name", or_null(gpu.name)},
          {"state", to_string(one.judgement.state)},
          {"memory_total_mib", mib_or_null(gpu.memory_total)},
          {"memory_used_mib", mib_or_null(gpu.memory_used)},
          {"utilization_pct", or_null(gpu.utilization_pct)},
          {"memory_utilization_pct", or_null(gpu.memory_utilization_pct)},
          {"temperature_c", or_null(gpu.temperature_c)},
          {"power_w", power},
          {"performance_state", or_null(gpu.performance_state)},
          {"reason", one.judgement.reason},
          {"processes", processes},
          {"leases", leases}};
}

Json host_json(const Status& status, const JsonExtent& extent = {}) {
  Json gpus = Json::array();
  for (const GpuStatus& gpu : status.gpus) gpus.push_back(gpu_json(gpu, status, extent));
  return {{"host", status.host},
          {"driver", or_null(status.driver)},
          {"gpus", gpus},
          {"queue", queue_array(status, extent)}};
}

Json host_queue_json(const Status& status, const JsonExtent& extent = {}) {
  return {{"host", status.host}, {"queue", queue_array(status, extent)}};
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
  return dump(host_json(status), form);
}

std::string hosts_json(const std::vector<Status>& hosts, JsonForm form, const JsonExtent& extent) {
  Json list = Json::array();
  for (const Status& host : hosts) {
    Json one = host_json(host, extent);
    if (extent.tickets) one["queue_length"] = host.queue.size();
    one["age_s"] = host.elsewhere ? Json(nullptr) : Json(0);
    if (host.age) one["age_s"] = host.age->count();
    one["problem"] = host.problem.empty() ? Json(nullptr) : Json(host.problem);
    list.push_back(std::move(one));
  }
  return dump({{"hosts", list}}, form);
}

std::string queue_json(const Status& status, JsonForm form) {
  return dump(host_queue_json(status), form);
}

std::string hosts_queue_json(const std::vector<Status>& hosts, JsonForm form,
                             const JsonExtent& extent) {
  Json list = Json::array();
  for (const Status& host : hosts) list.push_back(host_queue_json(host, extent));
  return dump({{"hosts", list}}, form);
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
