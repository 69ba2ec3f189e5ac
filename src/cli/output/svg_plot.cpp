// Draws plots as SVG; see svg_plot.h.
#include "cli/output/svg_plot.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/text.h"

namespace berth {
namespace {

constexpr double kColumnHeight = 150;  // pixels, as the others
constexpr double kTopMargin = 8;
constexpr double kBottomMargin = 24;  // for ticks
constexpr double kBarHeight = 10;
constexpr double kMaxColumnWidth = 8;  // in percent
constexpr std::size_t kMaxTicks = 6;   // as many as fit a phone
constexpr int kMaxLines = 5;           // of the vertical axis, above 0

std::string open_svg(std::string_view title, double height) {
  return fmt::format(
      "<svg role=\"img\" width=\"100%\" height=\"{:.0f}\" aria-label=\"{}\"><title>{}</title>\n",
      height, html_text(title), html_text(title));
}

// A vertical axis from 0, with a line at each multiple of `step`.
struct PlotAxis {
  double step = 1;
  int lines = 0;  // above 0

  double top() const { return step * lines; }
};

// The step is 1, 2, 2.5 or 5, times a power of ten.
PlotAxis make_axis(double max_value) {
  constexpr double kTolerance = 1.0001;
  double power = 1e-9;
  while (10 * power * kMaxLines * kTolerance < max_value) power *= 10;
  PlotAxis axis;
  for (const double factor : {1.0, 2.0, 2.5, 5.0, 10.0}) {
    axis.step = factor * power;
    if (axis.step * kMaxLines * kTolerance >= max_value) break;
  }
  while (axis.top() * kTolerance < max_value) ++axis.lines;
  return axis;
}

std::string axis_svg(const PlotAxis& axis) {
  std::string svg;
  for (int i = 0; i <= axis.lines; ++i) {
    const double y = kTopMargin + kColumnHeight * (1 - i * axis.step / axis.top());
    svg += fmt::format(
        "<line class=\"mark\" x1=\"0\" x2=\"100%\" y1=\"{0:.2f}\" y2=\"{0:.2f}\"/>"
        "<text class=\"value\" x=\"-8\" y=\"{1:.2f}\">{2:g}</text>\n",
        y, y + 4, i * axis.step);
  }
  return svg;
}

}  // namespace

double PlotBar::sum() const {
  double sum = 0;
  for (const PlotSegment& segment : segments) sum += segment.value;
  return sum;
}

std::string html_text(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string bar_plot(const PlotBar& bar, double max_value) {
  std::string svg = open_svg(fmt::format("{}: {}", bar.label, bar.value), kBarHeight);
  double x = 0;
  for (const PlotSegment& segment : bar.segments) {
    const double width = max_value > 0 ? 100 * segment.value / max_value : 0;
    if (width <= 0) continue;
    svg += fmt::format("<rect class=\"{}\" x=\"{:.3f}%\" y=\"0\" width=\"{:.3f}%\" height=\"{}\"/>",
                       segment.kind, x, width, kBarHeight);
    x += width;
  }
  return svg + "</svg>";
}

std::string column_plot(std::string_view title, const std::vector<PlotBar>& columns,
                        double max_value) {
  if (columns.empty() || max_value <= 0) return "";
  const PlotAxis axis = make_axis(max_value);
  const double slot = 100.0 / static_cast<double>(columns.size());
  const double width = std::min(0.8 * slot, kMaxColumnWidth);
  const double baseline = kTopMargin + kColumnHeight;
  const std::size_t tick_distance = (columns.size() + kMaxTicks - 1) / kMaxTicks;
  std::string svg = open_svg(title, baseline + kBottomMargin) + axis_svg(axis);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const PlotBar& column = columns[i];
    const double middle = (static_cast<double>(i) + 0.5) * slot;
    svg +=
        fmt::format("<g><title>{}: {}</title>", html_text(column.label), html_text(column.value));
    double y = baseline;
    for (const PlotSegment& segment : column.segments) {
      const double height = kColumnHeight * segment.value / axis.top();
      if (height <= 0) continue;
      y -= height;
      svg += fmt::format(
          "<rect class=\"{}\" x=\"{:.3f}%\" y=\"{:.2f}\" width=\"{:.3f}%\" height=\"{:.2f}\"/>",
          segment.kind, middle - width / 2, y, width, height);
    }
    svg += "</g>\n";
    if (i % tick_distance != 0) continue;
    svg += fmt::format("<text class=\"tick\" x=\"{:.3f}%\" y=\"{:.0f}\">{}</text>\n", middle,
                       baseline + 17, html_text(column.tick));
  }
  return svg + "</svg>\n";
}

}  // namespace berth
