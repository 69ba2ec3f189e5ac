// Bars and plots of characters: memory used and reserved, and values over time.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "status/status.h"
#include "top/line.h"

namespace berth::top {

using Values = std::vector<std::optional<double>>;  // shares of 0 to 1

// `width` columns, the newest at the right: what is known and 0 is a line, what is unknown a blank.
std::string sparkline(const Values& values, std::size_t width, Charset charset);

// The same, `height` lines high.
std::vector<std::string> tall_plot(const Values& values, std::size_t width, std::size_t height,
                                   Charset charset);

// What the leases of a GPU reserve there and do not use; all the rest for an exclusive one.
Bytes reserved_unused(const Status& host, const GpuStatus& gpu);

// What is used, then what is reserved beyond, then what is free: told apart without colour, too.
// Blanks if the driver does not say.
void add_memory_bar(StyledLine& line, const Status& host, const GpuStatus& gpu, std::size_t width,
                    Charset charset);

}  // namespace berth::top
