// Choosing and sorting; see rows.h.
#include "top/rows.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/text.h"
#include "base/users.h"
#include "status/status_parts.h"

namespace berth::top {
namespace {

bool holds(const GpuStatus& gpu, const Record& lease) {
  const auto& here = gpu.placed.leases;
  return std::find(here.begin(), here.end(), lease.id) != here.end();
}

// Of whoever has it: the holder of its first lease, else a stranger. Empty: nobody.
std::string user_of(const Status& host, const GpuStatus& gpu) {
  for (const Record& lease : host.leases) {
    if (holds(gpu, lease)) return user_name(lease.uid);
  }
  for (const AttributedProcess& one : gpu.placed.processes) {
    if (one.stranger() && one.process.uid) return user_name(*one.process.uid);
  }
  return "";
}

std::vector<const GpuStatus*> sorted(const Status& host, Sort sort) {
  std::vector<std::pair<std::tuple<bool, std::string, double>, const GpuStatus*>> ranked;
  for (const GpuStatus& one : host.gpus) {
    const Gpu& gpu = one.placed.gpu;
    std::string name;
    std::optional<double> most;
    if (sort == Sort::user) {
      name = user_of(host, one);
      if (!name.empty()) most = 0;
    }
    if (sort == Sort::memory && gpu.memory_used) {
      most = static_cast<double>(gpu.memory_used->count);
    }
    if (sort == Sort::utilization && gpu.utilization_pct) most = *gpu.utilization_pct;
    // Unknown, and nobody's, stand last.
    ranked.push_back({{!most, name, -most.value_or(0)}, &one});
  }
  if (sort != Sort::index) {  // which is the driver's order
    std::stable_sort(ranked.begin(), ranked.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
  }
  std::vector<const GpuStatus*> gpus;
  gpus.reserve(ranked.size());
  for (const auto& [rank, gpu] : ranked) gpus.push_back(gpu);
  return gpus;
}

bool is_of(const std::string& filter, const GpuProcess& process) {
  return filter.empty() || (process.uid && passes(filter, user_name(*process.uid)));
}

// Below its card: who has it, who is there without a lease, and what else there is to say.
std::vector<Row> rows_below(const Status& host, const GpuStatus& gpu, const std::string& filter,
                            std::map<std::string, std::string>& said) {
  std::vector<Row> rows;
  for (const Record& lease : host.leases) {
    if (!holds(gpu, lease) || !passes(filter, user_name(lease.uid))) continue;
    rows.push_back({RowKind::lease, &host, &gpu, &lease});
    std::string& at = said[lease.id];
    rows.back().said_at = at;
    if (at.empty()) at = berth::to_string(gpu.placed.gpu.index);
  }
  for (const AttributedProcess& one : gpu.placed.processes) {
    if (!one.stranger() || !is_of(filter, one.process)) continue;
    rows.push_back({RowKind::process, &host, &gpu, nullptr, &one});
  }
  return rows;
}

}  // namespace

const char* to_string(Sort sort) {
  switch (sort) {
    case Sort::index:
      return "index";
    case Sort::user:
      return "user";
    case Sort::memory:
      return "memory";
    case Sort::utilization:
      return "utilization";
  }
  return "";
}

Sort next(Sort sort) {
  return sort == Sort::utilization ? Sort::index
                                   : static_cast<Sort>(static_cast<std::uint8_t>(sort) + 1);
}

Key key_of(const Row& row) {
  Key key{row.kind, row.host->host, {}, {}};
  if (row.gpu != nullptr) {
    const Gpu& gpu = row.gpu->placed.gpu;
    key.gpu = gpu.uuid.value_or(berth::to_string(gpu.index));
  }
  if (row.lease != nullptr) key.id = row.lease->id;
  if (row.ticket != nullptr) key.id = row.ticket->record.id;
  return key;
}

bool passes(const std::string& filter, const std::string& user) {
  return lower_case(user).find(lower_case(filter)) != std::string::npos;
}

std::vector<Row> card_rows(const TopSnapshot& picture, Sort sort, const std::string& filter) {
  std::vector<Row> rows;
  for (const Status& host : picture.hosts) {
    const std::size_t before = rows.size();
    const bool heading = picture.hosts.size() > 1 || !host.problem.empty();
    if (heading) rows.push_back({RowKind::host, &host});
    std::map<std::string, std::string> said;
    for (const GpuStatus* gpu : sorted(host, sort)) {
      auto below = rows_below(host, *gpu, filter, said);
      if (!filter.empty() && below.empty()) continue;
      rows.push_back({RowKind::gpu, &host, gpu});
      rows.insert(rows.end(), below.begin(), below.end());
      if (reason_is_news(*gpu)) rows.push_back({RowKind::note, &host, gpu});
    }
    const bool nothing = rows.size() == before + 1 && heading;
    if (nothing && !filter.empty() && host.problem.empty()) rows.pop_back();
  }
  return rows;
}

std::vector<Row> queue_rows(const TopSnapshot& picture, const std::string& filter) {
  std::vector<Row> rows;
  for (const Status& host : picture.hosts) {
    for (const TicketStatus& ticket : host.queue) {
      if (!passes(filter, user_name(ticket.record.uid))) continue;
      for (const RowKind kind : {RowKind::ticket, RowKind::reason}) {
        rows.push_back({kind, &host, nullptr, nullptr, nullptr, &ticket});
      }
    }
  }
  return rows;
}

}  // namespace berth::top
