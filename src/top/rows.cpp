// Selects, filters and sorts rows; see rows.h.
#include "top/rows.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/text.h"
#include "base/users.h"
#include "status/status_format.h"

namespace berth::top {
namespace {

// The user of the GPU's first lease, or of its first stranger; "" if it has neither.
std::string gpu_user(const Status& host, const GpuStatus& gpu) {
  for (const Record& lease : host.leases) {
    if (gpu.view.has_lease(lease.id)) return user_name(lease.uid);
  }
  for (const AttributedProcess& one : gpu.view.processes) {
    if (one.is_stranger() && one.process.uid) return user_name(*one.process.uid);
  }
  return "";
}

std::vector<const GpuStatus*> sort_gpus(const Status& host, SortOrder sort) {
  std::vector<std::pair<std::tuple<bool, std::string, double>, const GpuStatus*>> ranked;
  for (const GpuStatus& one : host.gpus) {
    const Gpu& gpu = one.view.gpu;
    std::string name;
    std::optional<double> sort_value;
    if (sort == SortOrder::user) {
      name = gpu_user(host, one);
      if (!name.empty()) sort_value = 0;
    }
    if (sort == SortOrder::memory && gpu.memory_used) {
      sort_value = static_cast<double>(gpu.memory_used->count);
    }
    if (sort == SortOrder::utilization && gpu.utilization_pct) sort_value = *gpu.utilization_pct;
    if (sort == SortOrder::free_first && one.state_reason.state == GpuState::free) sort_value = 0;
    // GPUs without a value or without a user come last.
    ranked.push_back({{!sort_value, name, -sort_value.value_or(0)}, &one});
  }
  if (sort != SortOrder::index) {  // the driver's order is the order of indices
    std::stable_sort(ranked.begin(), ranked.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
  }
  std::vector<const GpuStatus*> gpus;
  gpus.reserve(ranked.size());
  for (const auto& [rank, gpu] : ranked) gpus.push_back(gpu);
  return gpus;
}

bool process_matches_filter(const std::string& filter, const GpuProcess& process) {
  return filter.empty() || (process.uid && matches_user_filter(filter, user_name(*process.uid)));
}

// The rows below a GPU: its leases with their processes, the processes without a lease, and the
// reason for its state. `shown_at` has, for each lease that already has a row, the index of that
// GPU.
std::vector<Row> rows_below(const Status& host, const GpuStatus& gpu, const std::string& filter,
                            bool with_processes, std::map<std::string, std::string>& shown_at) {
  std::vector<Row> rows;
  const auto add_processes = [&](const Record* lease) {
    for (const AttributedProcess& one : gpu.view.processes) {
      if (one.lease != (lease == nullptr ? "" : lease->id)) continue;
      if (!one.is_stranger() && !with_processes) continue;
      if (lease == nullptr && !process_matches_filter(filter, one.process)) continue;
      rows.push_back({RowKind::process, &host, &gpu, lease, &one});
    }
  };
  for (const Record& lease : host.leases) {
    if (!gpu.view.has_lease(lease.id) || !matches_user_filter(filter, user_name(lease.uid)))
      continue;
    rows.push_back({RowKind::lease, &host, &gpu, &lease});
    std::string& at = shown_at[lease.id];
    rows.back().shown_at_gpu = at;
    if (at.empty()) at = berth::to_string(gpu.view.gpu.index);
    add_processes(&lease);
  }
  add_processes(nullptr);
  if (!filter.empty() && rows.empty()) return rows;
  if (needs_reason_line(gpu)) rows.push_back({RowKind::note, &host, &gpu});
  return rows;
}

// Moves the first of the rows below a GPU into the GPU's own row.
void make_inline(Row& gpu_row, std::vector<Row>& below) {
  if (below.empty()) return;
  const Row& first = below.front();
  gpu_row.has_inline_reason = first.kind == RowKind::note;
  if (first.kind == RowKind::lease) gpu_row.inline_lease = first.lease;
  if (first.kind == RowKind::process) gpu_row.inline_process = first.process;
  below.erase(below.begin());
}

}  // namespace

const char* to_string(SortOrder sort) {
  switch (sort) {
    case SortOrder::index:
      return "index";
    case SortOrder::user:
      return "user";
    case SortOrder::memory:
      return "memory";
    case SortOrder::utilization:
      return "utilization";
    case SortOrder::free_first:
      return "free first";
  }
  return "";
}

const char* to_string(RowDetail detail) {
  switch (detail) {
    case RowDetail::compact:
      return "compact";
    case RowDetail::leases:
      return "leases";
    case RowDetail::processes:
      return "processes";
  }
  return "";
}

SortOrder next_sort_order(SortOrder sort) {
  return sort == SortOrder::free_first
             ? SortOrder::index
             : static_cast<SortOrder>(static_cast<std::uint8_t>(sort) + 1);
}

RowKey make_row_key(const Row& row) {
  RowKey key{row.kind, row.host->host, {}, {}};
  if (row.gpu != nullptr) {
    const Gpu& gpu = row.gpu->view.gpu;
    key.gpu = gpu.uuid.value_or(berth::to_string(gpu.index));
  }
  if (row.lease != nullptr) key.id = row.lease->id;
  if (row.ticket != nullptr) key.id = row.ticket->record.id;
  return key;
}

bool matches_user_filter(const std::string& filter, const std::string& user) {
  return lower_case(user).find(lower_case(filter)) != std::string::npos;
}

std::vector<Row> make_gpu_rows(const TopSnapshot& snapshot, SortOrder sort,
                               const std::string& filter, RowDetail detail) {
  std::vector<Row> rows;
  for (const Status& host : snapshot.hosts) {
    const std::size_t before = rows.size();
    const bool heading = snapshot.hosts.size() > 1 || !host.problem.empty();
    if (heading) rows.push_back({RowKind::host, &host});
    std::map<std::string, std::string> shown_at;
    for (const GpuStatus* gpu : sort_gpus(host, sort)) {
      auto below = rows_below(host, *gpu, filter, detail == RowDetail::processes, shown_at);
      if (!filter.empty() && below.empty()) continue;
      rows.push_back({RowKind::gpu, &host, gpu});
      if (detail == RowDetail::compact) make_inline(rows.back(), below);
      rows.insert(rows.end(), below.begin(), below.end());
    }
    const bool only_heading = rows.size() == before + 1 && heading;
    if (only_heading && !filter.empty() && host.problem.empty()) rows.pop_back();
  }
  return rows;
}

std::vector<Row> make_queue_rows(const TopSnapshot& snapshot, const std::string& filter,
                                 bool with_reasons) {
  std::vector<Row> rows;
  for (const Status& host : snapshot.hosts) {
    for (const TicketStatus& ticket : host.queue) {
      if (!matches_user_filter(filter, user_name(ticket.record.uid))) continue;
      rows.push_back({RowKind::ticket, &host, nullptr, nullptr, nullptr, &ticket});
      if (with_reasons) {
        rows.push_back({RowKind::reason, &host, nullptr, nullptr, nullptr, &ticket});
      }
    }
  }
  return rows;
}

}  // namespace berth::top
