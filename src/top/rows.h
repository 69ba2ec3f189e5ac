// The rows of `berth top`: selects and sorts GPUs, leases and tickets. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "status/status.h"
#include "top/host_usage.h"

namespace berth::top {

// The result of the last poll. After a failed poll, `hosts` is still that of the last success.
struct TopSnapshot {
  std::vector<Status> hosts;              // sorted by name
  std::optional<TimePoint> last_success;  // nullopt before the first poll that succeeded
  HostUsage usage{};                      // of the host on which berth top runs
  std::string problem{};                  // why the last poll failed; not yet escaped
  bool driver_is_slow = false;            // a poll is under way, and the driver does not answer yet
};

enum class SortOrder : std::uint8_t { index, user, memory, utilization, free_first };
const char* to_string(SortOrder sort);
SortOrder next_sort_order(SortOrder sort);

// How many rows the list has for each GPU.
enum class RowDetail : std::uint8_t {
  compact,    // one, with its first lease, stranger or reason in the same line
  leases,     // one more for each lease, stranger and reason
  processes,  // one more for each process
};
const char* to_string(RowDetail detail);

enum class RowKind : std::uint8_t {
  host,
  gpu,
  lease,
  process,
  note,  // reason for the state of a GPU
  ticket,
  reason,  // why the ticket above waits
};

// Points into the snapshot that it was made from, which must outlive it.
struct Row {
  RowKind kind;
  const Status* host;
  const GpuStatus* gpu = nullptr;
  const Record* lease = nullptr;
  const AttributedProcess* process = nullptr;
  const TicketStatus* ticket = nullptr;
  // For a lease on several GPUs, in every row but the first: the index of the GPU of the first one.
  std::string shown_at_gpu{};
  // Only in the row of a GPU in a compact list: what its own line also shows, at most one of these.
  const Record* inline_lease = nullptr;
  const AttributedProcess* inline_process = nullptr;
  bool has_inline_reason = false;

  bool is_selectable() const {
    return kind == RowKind::gpu || kind == RowKind::lease || kind == RowKind::ticket;
  }
};

// Identifies the same GPU, lease or ticket in different snapshots.
struct RowKey {
  RowKind kind = RowKind::gpu;
  std::string host;
  std::string gpu;  // UUID or index
  std::string id;   // of a lease or ticket
  auto operator<=>(const RowKey&) const = default;
};
RowKey make_row_key(const Row& row);

// Whether the user's name contains the filter, ignoring case. An empty filter matches every name.
bool matches_user_filter(const std::string& filter, const std::string& user);

// Every GPU, with its leases, processes and reason, and a heading for each host if there are
// several. With a filter, only GPUs on which a matching user has a lease or a stranger.
std::vector<Row> make_gpu_rows(const TopSnapshot& snapshot, SortOrder sort,
                               const std::string& filter, RowDetail detail);

// Every ticket of a matching user; `with_reasons`: with its reason below it.
std::vector<Row> make_queue_rows(const TopSnapshot& snapshot, const std::string& filter,
                                 bool with_reasons);

}  // namespace berth::top
