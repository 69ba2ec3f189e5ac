// The whole screen as lines: what the model shows, laid out for a size. Pure.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "top/line.h"
#include "top/model.h"
#include "top/series.h"

namespace berth::top {

// Below this nothing can be told apart.
constexpr std::size_t kMinWidth = 60;
constexpr std::size_t kMinHeight = 10;

struct Frame {
  std::vector<StyledLine> lines;  // at most as many as there is room for, each no wider than that
  std::optional<std::pair<std::size_t, std::size_t>> cursor{};  // row and column, while one types
};

// Scrolls the model to where its selection can be seen.
Frame render_frame(Model& model, const PlotHistory& history, const Canvas& canvas, TimePoint now);

}  // namespace berth::top
