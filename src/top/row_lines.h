// Renders rows as lines: GPUs with memory, load and plots; leases, strangers and tickets. Pure.
#pragma once

#include <sys/types.h>

#include "top/columns.h"
#include "top/line.h"
#include "top/rows.h"
#include "top/series.h"

namespace berth::top {

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
