// The widths of the columns of the list, for a size of the screen. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "top/line.h"
#include "top/rows.h"

namespace berth::top {

constexpr std::size_t kMargin = 1;
constexpr std::size_t kGap = 2;

// 0: there is no room for the column.
struct ColumnWidths {
  RowDetail detail = RowDetail::leases;
  std::size_t index = 3;
  std::size_t name = 0;
  std::size_t state = 8;
  std::size_t bar = 10;
  std::size_t memory = 6;
  std::size_t memory_plot = 0;
  std::size_t utilization = 4;
  std::size_t utilization_plot = 0;
  std::size_t temperature = 4;
  std::size_t power = 0;
  std::size_t user = 4;    // of leases and tickets
  std::size_t ends = 4;    // of leases
  std::size_t age = 6;     // of leases, since the grant: "9h 59m"
  std::size_t waited = 3;  // of tickets
  std::size_t starts = 4;  // of tickets
};
ColumnWidths compute_column_widths(const TopSnapshot& snapshot, RowDetail detail,
                                   const Canvas& canvas, TimePoint now);

// The margin, and the columns of GPUs with the gaps between them.
std::size_t gpu_columns_width(const ColumnWidths& columns);

// "GeForce RTX 4090": without the vendor, which is the same for all GPUs.
std::string_view short_gpu_name(const Gpu& gpu);

// When the lease ends: "ends in 40m", "ends in ~40m" if it is an estimate, "5m late".
StyledText end_text(const Record& lease, RowDetail detail, TimePoint now);

// When the ticket is expected to start: "starts in ~40m", "start unknown".
StyledText start_text(const TicketStatus& ticket, TimePoint now);

}  // namespace berth::top
