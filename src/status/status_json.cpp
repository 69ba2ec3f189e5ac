// Writes a status as JSON; see status_json.h. docs/json.md describes the keys.
#include "status/status_json.h"

#include <ctime>
#include <utility>

#include "base/json.h"
#include "base/time_text.h"
#include "base/users.h"
#include "status/status_format.h"

namespace berth {
namespace {

// The index of a card is a number; that of a MIG instance is the text "card:instance".
Json index_json(const GpuIndex& index) {
  return index.instance ? Json(to_string(index)) : Json(index.card);
}

Json process_json(const AttributedProcess& attributed) {
  const GpuProcess& process = attributed.process;
  return {{"pid", process.pid},
          {"user", process.uid ? Json(user_name(*process.uid)) : Json(nullptr)},
          {"name", or_null(process.name)},
          {"memory_mib", mib_or_null(process.memory)},
          {"lease", attributed.lease.empty() ? Json(nullptr) : Json(attributed.lease)}};
}

Json indices_json(const std::vector<GpuIndex>& gpus) {
  Json indices = Json::array();
  for (const GpuIndex& index : gpus) indices.push_back(index_json(index));
  return indices;
}

Json next_free_json(const std::optional<NextFree>& next) {
  if (!next) return nullptr;
  return {{"gpus", indices_json(next->gpus)},
          {"at", format_iso_time(next->at)},
          {"source", to_string(next->source)}};
}

Json lease_json(const Record& lease, TimePoint now, const JsonLimits& limits) {
  const auto idle = idle_since(lease, now);
  const auto end = find_lease_end(lease, now);
  const auto known = [&](Json value) {
    return lease.is_readable() ? std::move(value) : Json(nullptr);
  };
  return {{"id", lease.id},
          {"user", user_name(lease.uid)},
          {"pid", known(lease.pid)},
          {"holder", known(lease.holder == HolderKind::shell ? "shell" : "job")},
          {"adopted", known(lease.adopted_start.has_value())},
          {"command",
           known(command_or_null(lease.command, user_name(lease.uid), limits.command_visibility))},
          {"label", known(lease.label)},
          {"since", known(format_iso_time(lease.granted))},
          {"ends", end ? Json(format_iso_time(end->at)) : Json(nullptr)},
          {"ends_source", end ? Json(to_string(end->source)) : Json(nullptr)},
          {"overdue", end && end->overdue},
          {"exclusive", !lease.request.memory},
          {"memory_mib", mib_or_null(lease.request.memory)},
          {"job", job_or_null(lease.job, user_name(lease.uid), limits.command_visibility)},
          {"idle_s", idle ? Json(std::chrono::floor<std::chrono::seconds>(now - *idle).count())
                          : Json(nullptr)},
          {"problem", lease.problem.empty() ? Json(nullptr) : Json(lease.problem)}};
}

Json ticket_json(const TicketStatus& ticket, const Status& status, const JsonLimits& limits) {
  const Record& record = ticket.record;
  const Request& request = record.request;
  Json time_s = nullptr;
  if (request.time) time_s = std::chrono::ceil<std::chrono::seconds>(*request.time).count();
  return {
      {"ticket", record.id},
      {"position", ticket.position},
      {"user", user_name(record.uid)},
      {"pid", record.pid},
      {"command",
       command_or_null(record.command, user_name(record.uid), limits.command_visibility)},
      {"label", record.label},
      {"since", format_iso_time(record.since)},
      {"request", format_request(request, status)},
      {"count", request.count},
      {"memory_mib", mib_or_null(request.memory)},
      {"time_s", time_s},
      {"gpu_name", or_null(request.name)},
      {"gpus", request.uuids ? indices_json(find_requested_gpus(request, status)) : Json(nullptr)},
      {"reason", ticket.reason},
      {"starts", ticket.starts ? Json(format_iso_time(*ticket.starts)) : Json(nullptr)},
      {"start_unknown_reason",
       ticket.start_unknown_reason.empty() ? Json(nullptr) : Json(ticket.start_unknown_reason)}};
}

Json queue_array(const Status& status, const JsonLimits& limits = {}) {
  Json queue = Json::array();
  for (const TicketStatus& ticket : status.queue) {
    if (limits.tickets && queue.size() >= *limits.tickets) break;
    queue.push_back(ticket_json(ticket, status, limits));
  }
  return queue;
}

Json gpu_json(const GpuStatus& one, const Status& status, const JsonLimits& limits) {
  const Gpu& gpu = one.view.gpu;
  Json processes = Json::array();
  for (const AttributedProcess& process : one.view.processes) {
    processes.push_back(process_json(process));
  }
  Json leases = Json::array();
  for (const Record& lease : status.leases) {
    if (one.view.has_lease(lease.id)) leases.push_back(lease_json(lease, status.time, limits));
  }
  Json power = nullptr;
  if (gpu.power_w) power = static_cast<double>(round_positive(*gpu.power_w * 10)) / 10;
  return {{"index", index_json(gpu.index)},
          {"uuid", or_null(gpu.uuid)},
          {"name", or_null(gpu.name)},
          {"state", to_string(one.state_reason.state)},
          {"memory_total_mib", mib_or_null(gpu.memory_total)},
          {"memory_used_mib", mib_or_null(gpu.memory_used)},
          {"utilization_pct", or_null(gpu.utilization_pct)},
          {"memory_utilization_pct", or_null(gpu.memory_utilization_pct)},
          {"temperature_c", or_null(gpu.temperature_c)},
          {"power_w", power},
          {"performance_state", or_null(gpu.performance_state)},
          {"reason", one.state_reason.reason},
          {"processes", std::move(processes)},
          {"leases", std::move(leases)}};
}

Json host_json(const Status& status, const JsonLimits& limits = {}) {
  Json gpus = Json::array();
  for (const GpuStatus& gpu : status.gpus) gpus.push_back(gpu_json(gpu, status, limits));
  return {{"host", status.host},
          {"driver", or_null(status.driver)},
          {"next_free", next_free_json(status.next_free)},
          {"gpus", std::move(gpus)},
          {"queue", queue_array(status, limits)}};
}

Json host_queue_json(const Status& status, const JsonLimits& limits = {}) {
  return {{"host", status.host},
          {"next_free", next_free_json(status.next_free)},
          {"queue", queue_array(status, limits)}};
}

std::string dump(const Json& json, JsonForm form) {
  return to_ascii_json(json, form == JsonForm::pretty ? 2 : kOneLine) + "\n";
}

std::string_view proximity_name(Proximity proximity) {
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

std::string hosts_json(const std::vector<Status>& hosts, JsonForm form, const JsonLimits& limits) {
  Json list = Json::array();
  for (const Status& host : hosts) {
    Json one = host_json(host, limits);
    if (limits.tickets) one["queue_length"] = host.queue.size();
    one["age_s"] = host.is_remote ? Json(nullptr) : Json(0);
    if (host.age) one["age_s"] = host.age->count();
    one["problem"] = host.problem.empty() ? Json(nullptr) : Json(host.problem);
    list.push_back(std::move(one));
  }
  return dump({{"hosts", std::move(list)}}, form);
}

std::string queue_json(const Status& status, JsonForm form) {
  return dump(host_queue_json(status), form);
}

std::string hosts_queue_json(const std::vector<Status>& hosts, JsonForm form,
                             const JsonLimits& limits) {
  Json list = Json::array();
  for (const Status& host : hosts) list.push_back(host_queue_json(host, limits));
  return dump({{"hosts", std::move(list)}}, form);
}

std::string topology_json(const Topology& topology, JsonForm form) {
  Json connections = Json::array();
  for (const Connection& connection : topology.connections) {
    Json path = nullptr;
    if (connection.proximity) path = proximity_name(*connection.proximity);
    connections.push_back({{"a", index_json(connection.a)},
                           {"b", index_json(connection.b)},
                           {"nvlinks", or_null(connection.nvlinks)},
                           {"path", path}});
  }
  return dump({{"connections", std::move(connections)}}, form);
}

}  // namespace berth
