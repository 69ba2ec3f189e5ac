// Draws plots as SVG; see svg_plot.h.
#include "cli/output/svg_plot.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/text.h"

namespace berth {
namespace {

constexpr std::size_t kMaxLabelWidth = 36;
constexpr double kRowHeight = 38;  // pixels, as the others
constexpr double kColumnHeight = 150;
constexpr double kTopMargin = 20;     // for the label of the highest value
constexpr double kBottomMargin = 24;  // for dates

double max_total(const std::vector<PlotBar>& bars) {
  double max_value = 1e-9;
  for (const PlotBar& bar : bars) max_value = std::max(max_value, bar.sum());
  return max_value;
}

std::string open_svg(std::string_view title, double height) {
  return fmt::format(
      "<svg role=\"img\" width=\"100%\" height=\"{:.0f}\" aria-label=\"{}\"><title>{}</title>\n",
      height, html_text(title), html_text(title));
}

struct Segment {
  const char* kind;
  double value;
};

std::vector<Segment> segments(const PlotBar& bar) {
  return {{"used", bar.used}, {"idle", bar.idle}, {"shared", bar.shared}};
}

}  // namespace

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

std::string bar_plot(std::string_view title, const std::vector<PlotBar>& bars) {
  const double max_value = max_total(bars);
  std::string svg = open_svg(title, kRowHeight * static_cast<double>(bars.size()));
  double y = 0;
  for (const PlotBar& bar : bars) {
    svg += fmt::format("<g><title>{}: {}</title>", html_text(bar.label), html_text(bar.value));
    svg += fmt::format("<text x=\"0\" y=\"{:.0f}\">{}</text>", y + 14,
                       html_text(truncate_text(printable(bar.label), kMaxLabelWidth)));
    svg += fmt::format("<text class=\"value\" x=\"100%\" y=\"{:.0f}\">{}</text>", y + 14,
                       html_text(bar.value));
    double x = 0;
    for (const Segment& segment : segments(bar)) {
      const double width = 100 * segment.value / max_value;
      if (width <= 0) continue;
      svg += fmt::format(
          "<rect class=\"{}\" x=\"{:.3f}%\" y=\"{:.0f}\" width=\"{:.3f}%\" height=\"10\"/>",
          segment.kind, x, y + 20, width);
      x += width;
    }
    svg += "</g>\n";
    y += kRowHeight;
  }
  return svg + "</svg>\n";
}

std::string column_plot(std::string_view title, const std::vector<PlotBar>& columns,
                        double max_value, std::string_view max_label) {
  if (columns.empty() || max_value <= 0) return "";
  const double step = 100.0 / static_cast<double>(columns.size());
  const double baseline = kTopMargin + kColumnHeight;
  std::string svg = open_svg(title, baseline + kBottomMargin);
  svg +=
      fmt::format("<line class=\"mark\" x1=\"0\" x2=\"100%\" y1=\"{0}\" y2=\"{0}\"/>", kTopMargin);
  svg += fmt::format("<text x=\"0\" y=\"{:.0f}\">{}</text>", kTopMargin - 6, html_text(max_label));
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const PlotBar& column = columns[i];
    svg +=
        fmt::format("<g><title>{}: {}</title>", html_text(column.label), html_text(column.value));
    double y = baseline;
    for (const Segment& segment : segments(column)) {
      const double height = kColumnHeight * segment.value / max_value;
      if (height <= 0) continue;
      y -= height;
      svg += fmt::format(
          "<rect class=\"{}\" x=\"{:.3f}%\" y=\"{:.2f}\" width=\"{:.3f}%\" height=\"{:.2f}\"/>",
          segment.kind, static_cast<double>(i) * step + 0.1 * step, y, 0.8 * step, height);
    }
    svg += "</g>\n";
  }
  svg += fmt::format("<line class=\"mark\" x1=\"0\" x2=\"100%\" y1=\"{0}\" y2=\"{0}\"/>", baseline);
  svg += fmt::format("<text x=\"0\" y=\"{:.0f}\">{}</text>", baseline + 17,
                     html_text(columns.front().label));
  if (columns.size() > 1) {
    svg += fmt::format("<text class=\"value\" x=\"100%\" y=\"{:.0f}\">{}</text>", baseline + 17,
                       html_text(columns.back().label));
  }
  return svg + "</svg>\n";
}

}  // namespace berth
