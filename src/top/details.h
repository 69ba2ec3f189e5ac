// The page with all facts about one GPU, lease or ticket, and the help page, as lines. Pure.
#pragma once

#include <string>
#include <vector>

#include "top/row_lines.h"

namespace berth::top {

// "GPU 0 on gpu-a", "Lease k3f9a2mx", "Ticket k3f9a2mx".
std::string details_title(const Row& row, const Canvas& canvas);

// Wrapped to the width of the canvas.
std::vector<StyledLine> details_lines(const Row& row, const RenderContext& context);

// The keys and the colours.
std::vector<StyledLine> help_lines(Charset charset);

}  // namespace berth::top
