// A text chart of the leased GPU time by day.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "archive/report_format.h"
#include "base/terminal.h"

namespace berth {

std::string repeat_text(std::string_view piece, std::size_t times);

// The chart fits into the terminal's width: a day has up to 4 columns of text, or several days
// share one column. Empty if there are no days.
std::string format_day_chart(const std::vector<ReportGroup<TimePoint>>& days,
                             const ReportUnits& units, const Terminal& terminal);

}  // namespace berth
