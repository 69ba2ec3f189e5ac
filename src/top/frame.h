// Lays out the whole screen as lines, for a given size. Reads no clock, and writes nothing to the
// terminal.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "top/line.h"
#include "top/model.h"
#include "top/series.h"

namespace berth::top {

// A smaller terminal shows only a message.
constexpr std::size_t kMinWidth = 60;
constexpr std::size_t kMinHeight = 10;

struct Frame {
  std::vector<StyledLine> lines;  // at most canvas.height, each at most canvas.width columns wide
  std::optional<std::pair<std::size_t, std::size_t>> cursor{};  // row, column; while the user types
};

// Chooses the rows that fit into the list; see Model::fit_list(). Call it after each change of the
// model or of the canvas, and before render_frame().
void fit_list(Model& model, const Canvas& canvas, TimePoint now);

// Changes only model.scroll(), so that the selected row is visible.
Frame render_frame(Model& model, const PlotHistory& history, const Canvas& canvas, TimePoint now);

}  // namespace berth::top
