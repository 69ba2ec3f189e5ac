// The chart; see day_chart.h.
#include "archive/day_chart.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "archive/report_parts.h"
#include "base/time_text.h"

namespace berth {
namespace {

constexpr std::size_t kHeight = 5;
constexpr std::size_t kUsualWidth = 100;
constexpr std::size_t kWidestDay = 4;

// Part of a column that `eighths` of a cell high is.
std::string_view block(std::size_t eighths, Charset charset) {
  constexpr std::array<std::string_view, 9> kBlocks{
      " ", "\u2581", "\u2582", "\u2583", "\u2584", "\u2585", "\u2586", "\u2587", "\u2588"};
  if (charset == Charset::ascii) return eighths >= 4 ? "#" : eighths > 0 ? "." : " ";
  return kBlocks[eighths];
}

}  // namespace

std::string repeated(std::string_view piece, std::size_t times) {
  std::string text;
  for (std::size_t i = 0; i < times; ++i) text += piece;
  return text;
}

std::string day_chart(const std::vector<Part<TimePoint>>& days, const Terminal& terminal) {
  if (days.empty()) return "";
  const std::size_t width = std::max<std::size_t>(terminal.width.value_or(kUsualWidth), 24);
  const std::size_t room = width - std::string_view("12345.6 ").size();
  const std::size_t together = (days.size() + room - 1) / room;  // days in a column
  std::vector<double> hours((days.size() + together - 1) / together);
  for (std::size_t i = 0; i < days.size(); ++i) {
    const std::size_t in_column = std::min(together, days.size() - i / together * together);
    hours[i / together] += days[i].figures.held_hours() / static_cast<double>(in_column);
  }
  const std::size_t wide = std::clamp<std::size_t>(room / hours.size(), 1, kWidestDay);
  const std::size_t gap = wide > 1 ? 1 : 0;
  const double most = std::max(*std::max_element(hours.begin(), hours.end()), 1e-9);
  std::string text;
  for (std::size_t row = kHeight; row-- > 0;) {
    std::string line;
    for (const double value : hours) {
      // What there is can be seen, however little it is.
      const auto high = std::max<std::size_t>(
          rounded(value / most * static_cast<double>(8 * kHeight)), value > 0 ? 1 : 0);
      const std::size_t eighths = std::min<std::size_t>(high > 8 * row ? high - 8 * row : 0, 8);
      line += repeated(block(eighths, terminal.charset), wide - gap) + repeated(" ", gap);
    }
    const std::string mark = row + 1 == kHeight ? hours_text(most) : row == 0 ? "0" : "";
    line.erase(line.find_last_not_of(' ') + 1);
    text += fmt::format("{} {}\n", right(mark, 7), terminal.paint(Style::notice, line));
  }
  const std::string first = local_day(days.front().of);
  const std::string last = local_day(days.back().of);
  const std::size_t columns = hours.size() * wide - gap;
  std::string dates = columns < first.size() + 1 + last.size()
                          ? (first == last ? first : fmt::format("{} to {}", first, last))
                          : left(first, columns - last.size()) + last;
  text += fmt::format("{} {}\n", right("", 7), dates);
  if (together > 1)
    text += fmt::format("{} a column is the mean of {} days\n", right("", 7), together);
  return text;
}

}  // namespace berth
