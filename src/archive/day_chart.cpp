// Draws the chart of the leased GPU time by day; see day_chart.h.
#include "archive/day_chart.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "base/time_text.h"

namespace berth {
namespace {

constexpr std::size_t kChartRows = 5;
constexpr std::size_t kDefaultWidth = 100;
constexpr std::size_t kMaxDayWidth = 4;

// The character for a cell of which `eighths` are filled, from the bottom.
std::string_view bar_glyph(std::size_t eighths, Charset charset) {
  constexpr std::array<std::string_view, 9> kBlocks{
      " ", "\u2581", "\u2582", "\u2583", "\u2584", "\u2585", "\u2586", "\u2587", "\u2588"};
  if (charset == Charset::ascii) return eighths >= 4 ? "#" : eighths > 0 ? "." : " ";
  return kBlocks[eighths];
}

}  // namespace

std::string repeat_text(std::string_view piece, std::size_t times) {
  std::string text;
  for (std::size_t i = 0; i < times; ++i) text += piece;
  return text;
}

std::string format_day_chart(const std::vector<ReportGroup<TimePoint>>& days,
                             const ReportUnits& units, const Terminal& terminal) {
  if (days.empty()) return "";
  const std::size_t width = std::max<std::size_t>(terminal.width.value_or(kDefaultWidth), 24);
  const std::size_t chart_width = width - std::string_view("12345.6 ").size();
  const std::size_t days_per_column = (days.size() + chart_width - 1) / chart_width;
  std::vector<double> hours((days.size() + days_per_column - 1) / days_per_column);
  for (std::size_t i = 0; i < days.size(); ++i) {
    const std::size_t in_column =
        std::min(days_per_column, days.size() - i / days_per_column * days_per_column);
    hours[i / days_per_column] += days[i].figures.held_hours() / static_cast<double>(in_column);
  }
  const std::size_t column_width =
      std::clamp<std::size_t>(chart_width / hours.size(), 1, kMaxDayWidth);
  const std::size_t gap = column_width > 1 ? 1 : 0;
  const double max_hours = std::max(*std::max_element(hours.begin(), hours.end()), 1e-9);
  std::string text;
  for (std::size_t row = kChartRows; row-- > 0;) {
    std::string line;
    for (const double value : hours) {
      // A value above zero is always visible.
      const auto bar_eighths = std::max<std::size_t>(
          round_positive(value / max_hours * static_cast<double>(8 * kChartRows)),
          value > 0 ? 1 : 0);
      const std::size_t eighths =
          std::min<std::size_t>(bar_eighths > 8 * row ? bar_eighths - 8 * row : 0, 8);
      line += repeat_text(bar_glyph(eighths, terminal.charset), column_width - gap) +
              repeat_text(" ", gap);
    }
    const std::string axis_label = row + 1 == kChartRows ? time_text(max_hours, units)
                                   : row == 0            ? "0"
                                                         : "";
    line.erase(line.find_last_not_of(' ') + 1);
    text += fmt::format("{} {}\n", align_right(axis_label, 7), terminal.paint(Style::notice, line));
  }
  const std::string first = format_local_date(days.front().key);
  const std::string last = format_local_date(days.back().key);
  const std::size_t columns = hours.size() * column_width - gap;
  std::string dates = columns < first.size() + 1 + last.size()
                          ? (first == last ? first : fmt::format("{} to {}", first, last))
                          : align_left(first, columns - last.size()) + last;
  text += fmt::format("{} {}\n", align_right("", 7), dates);
  if (days_per_column > 1)
    text +=
        fmt::format("{} each column is the mean of {} days\n", align_right("", 7), days_per_column);
  return text;
}

}  // namespace berth
