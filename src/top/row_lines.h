// Rows as lines: a GPU with its memory, load and plots; leases, strangers and tickets. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <sys/types.h>
#include <vector>

#include "top/line.h"
#include "top/rows.h"
#include "top/series.h"

namespace berth::top {

// How wide each column is; those that find no room are 0.
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

// What all rows are drawn with.
struct RenderContext {
  const Canvas& canvas;
  const ColumnWidths& columns;
  const PlotHistory& history;
  TimePoint now;
  uid_t viewer;  // whose own things stand out
};

StyledLine title_line(const RenderContext& context);
StyledLine row_line(const Row& row, const RenderContext& context);

}  // namespace berth::top
