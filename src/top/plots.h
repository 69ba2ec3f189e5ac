// Text plots: a bar of used and reserved memory, and values over time.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "status/status.h"
#include "top/line.h"

namespace berth::top {

using Values = std::vector<std::optional<double>>;  // from 0 to 1; nullopt: unknown

// The style of a value by its size, from 0 to 1: for utilization and for memory.
using ValueStyle = Style (*)(double share);
Style load_style(double share);
Style memory_style(double share);

Style temperature_style(const std::optional<unsigned>& celsius);

// Appends a plot of `width` columns, with the newest value at the right. A value of 0 is a line at
// the bottom, an unknown one is a blank.
void add_sparkline(StyledLine& line, const Values& values, std::size_t width, ValueStyle style,
                   Charset charset);

// The same with `height` lines, from top to bottom.
std::vector<StyledLine> tall_plot(const Values& values, std::size_t width, std::size_t height,
                                  ValueStyle style, Charset charset);

// The memory that the leases of a GPU reserve but do not use; all free memory if a lease is
// exclusive.
Bytes reserved_unused(const Status& host, const GpuStatus& gpu);

// Appends a bar of used, reserved and free memory, which differ also without colours; blanks if the
// driver does not report the memory.
void add_memory_bar(StyledLine& line, const Status& host, const GpuStatus& gpu, std::size_t width,
                    Charset charset);

}  // namespace berth::top
