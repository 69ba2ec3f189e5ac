// Charts of the GPUs in the lines that the list leaves free. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "top/line.h"
#include "top/rows.h"
#include "top/series.h"

namespace berth::top {

constexpr std::size_t kMinPanelHeight = 4;

// A line that says what the charts show, and below it the utilization and the memory of each GPU
// among `rows`, since the start of `history`; only the utilization, or the averages of all these
// GPUs, if there is no room for more. At most `height` lines; none without GPUs.
std::vector<StyledLine> plot_panel(const std::vector<Row>& rows, const PlotHistory& history,
                                   const Canvas& canvas, std::size_t height, TimePoint now);

}  // namespace berth::top
