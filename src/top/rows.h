// The rows of the view: which GPUs, leases and tickets are shown, and in which order. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "status/status.h"

namespace berth::top {

// What one look has seen, or why it could not.
struct TopSnapshot {
  std::vector<Status> hosts;              // by name
  std::optional<TimePoint> last_success;  // when; nothing before the first look that succeeded
  std::string problem{};                  // why the last look failed; as it came
  bool driver_is_slow = false;            // a look is under way, and the driver takes long
};

enum class SortOrder : std::uint8_t { index, user, memory, utilization };
const char* to_string(SortOrder sort);
SortOrder next_sort_order(SortOrder sort);

enum class RowKind : std::uint8_t {
  host,
  gpu,
  lease,
  process,  // a stranger's
  note,     // why a GPU is as it is
  ticket,
  reason,  // why the ticket above waits
};

// Points into the picture that it was made from.
struct Row {
  RowKind kind;
  const Status* host;
  const GpuStatus* gpu = nullptr;
  const Record* lease = nullptr;
  const AttributedProcess* process = nullptr;
  const TicketStatus* ticket = nullptr;
  std::string shown_at_gpu{};  // of a lease: the GPU of an earlier row of it

  bool is_selectable() const {
    return kind == RowKind::gpu || kind == RowKind::lease || kind == RowKind::ticket;
  }
};

// What a row is about, also in the next picture.
struct RowKey {
  RowKind kind = RowKind::gpu;
  std::string host;
  std::string gpu;  // UUID or index
  std::string id;   // of a lease or ticket
  auto operator<=>(const RowKey&) const = default;
};
RowKey make_row_key(const Row& row);

// Is part of the user's name, in any case? An empty filter is part of every name.
bool matches_user_filter(const std::string& filter, const std::string& user);

// Every GPU with its leases, strangers and reasons below it; hosts by name, if there are several.
// With a filter, only those on which a user whom it names has a lease or a process.
std::vector<Row> make_gpu_rows(const TopSnapshot& snapshot, SortOrder sort,
                               const std::string& filter);

// Every ticket, with its reason below it.
std::vector<Row> make_queue_rows(const TopSnapshot& snapshot, const std::string& filter);

}  // namespace berth::top
