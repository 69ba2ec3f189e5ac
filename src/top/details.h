// Everything that is known of one GPU, lease or ticket, as lines. Pure.
#pragma once

#include <string>
#include <vector>

#include "top/row_lines.h"

namespace berth::top {

// "GPU 0 on gpu-a", "Lease k3f9a2mx", "Ticket k3f9a2mx".
std::string details_title(const Row& row, const Canvas& canvas);

// Wrapped to the sheet's width.
std::vector<StyledLine> details_lines(const Row& row, const RenderContext& context);

// What the keys do.
std::vector<StyledLine> help_lines(Charset charset);

}  // namespace berth::top
