// Renders rows as lines: GPUs with memory, load and plots; leases, strangers and tickets. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <sys/types.h>
#include <vector>

#include "top/line.h"
#include "top/rows.h"
#include "top/series.h"

namespace berth::top {

// The width of each column; 0: there is no room for it.
struct ColumnWidths {
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
  std::size_t user = 4;  // of leases and tickets
};
ColumnWidths compute_column_widths(const TopSnapshot& snapshot, const Canvas& canvas);

// What the rendering of all rows needs.
struct RenderContext {
  const Canvas& canvas;
  const ColumnWidths& columns;
  const PlotHistory& history;
  TimePoint now;
  uid_t viewer;  // this user's leases and tickets are emphasized
};

StyledLine title_line(const RenderContext& context);
StyledLine row_line(const Row& row, const RenderContext& context);

}  // namespace berth::top
