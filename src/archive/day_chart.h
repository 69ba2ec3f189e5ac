// A chart of GPU-hours by day, of characters.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "archive/report.h"
#include "base/terminal.h"

namespace berth {

std::string repeat_text(std::string_view piece, std::size_t times);

// Columns from left to right that fit in the terminal's width: several to a day, or several days to
// one. Nothing if there are no days.
std::string format_day_chart(const std::vector<ReportGroup<TimePoint>>& days,
                             const Terminal& terminal);

}  // namespace berth
