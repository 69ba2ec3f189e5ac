// Renders the two lines at the top of the screen: GPUs by state, what is free, and this host. Pure.
#pragma once

#include <vector>

#include "top/line.h"
#include "top/model.h"

namespace berth::top {

// The first line names the host, counts its GPUs and has the time; the second one says which GPUs
// are free, which one is free next, and how busy the processors and the memory of this host are.
std::vector<StyledLine> head_lines(const Model& model, const Canvas& canvas, TimePoint now);

}  // namespace berth::top
