// Drawing of plots; see svg_plot.h.
#include "cli/output/svg_plot.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/text.h"

namespace berth {
namespace {

constexpr std::size_t kLongestLabel = 36;
constexpr double kRow = 38;    // pixels
constexpr double kHigh = 150;  // of columns
constexpr double kAbove = 20;  // for what the highest is worth
constexpr double kBelow = 24;  // for dates

double highest(const std::vector<PlotBar>& bars) {
  double most = 1e-9;
  for (const PlotBar& bar : bars) most = std::max(most, bar.sum());
  return most;
}

std::string opened(std::string_view title, double height) {
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
  const double most = highest(bars);
  std::string svg = opened(title, kRow * static_cast<double>(bars.size()));
  double y = 0;
  for (const PlotBar& bar : bars) {
    svg += fmt::format("<g><title>{}: {}</title>", html_text(bar.label), html_text(bar.value));
    svg += fmt::format("<text x=\"0\" y=\"{:.0f}\">{}</text>", y + 14,
                       html_text(fitted(printable(bar.label), kLongestLabel)));
    svg += fmt::format("<text class=\"value\" x=\"100%\" y=\"{:.0f}\">{}</text>", y + 14,
                       html_text(bar.value));
    double x = 0;
    for (const Segment& part : segments(bar)) {
      const double width = 100 * part.value / most;
      if (width <= 0) continue;
      svg += fmt::format(
          "<rect class=\"{}\" x=\"{:.3f}%\" y=\"{:.0f}\" width=\"{:.3f}%\" height=\"10\"/>",
          part.kind, x, y + 20, width);
      x += width;
    }
    svg += "</g>\n";
    y += kRow;
  }
  return svg + "</svg>\n";
}

std::string column_plot(std::string_view title, const std::vector<PlotBar>& columns, double most,
                        std::string_view top) {
  if (columns.empty() || most <= 0) return "";
  const double step = 100.0 / static_cast<double>(columns.size());
  const double foot = kAbove + kHigh;
  std::string svg = opened(title, foot + kBelow);
  svg += fmt::format("<line class=\"mark\" x1=\"0\" x2=\"100%\" y1=\"{0}\" y2=\"{0}\"/>", kAbove);
  svg += fmt::format("<text x=\"0\" y=\"{:.0f}\">{}</text>", kAbove - 6, html_text(top));
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const PlotBar& column = columns[i];
    svg +=
        fmt::format("<g><title>{}: {}</title>", html_text(column.label), html_text(column.value));
    double y = foot;
    for (const Segment& part : segments(column)) {
      const double height = kHigh * part.value / most;
      if (height <= 0) continue;
      y -= height;
      svg += fmt::format(
          "<rect class=\"{}\" x=\"{:.3f}%\" y=\"{:.2f}\" width=\"{:.3f}%\" height=\"{:.2f}\"/>",
          part.kind, static_cast<double>(i) * step + 0.1 * step, y, 0.8 * step, height);
    }
    svg += "</g>\n";
  }
  svg += fmt::format("<line class=\"mark\" x1=\"0\" x2=\"100%\" y1=\"{0}\" y2=\"{0}\"/>", foot);
  svg += fmt::format("<text x=\"0\" y=\"{:.0f}\">{}</text>", foot + 17,
                     html_text(columns.front().label));
  if (columns.size() > 1) {
    svg += fmt::format("<text class=\"value\" x=\"100%\" y=\"{:.0f}\">{}</text>", foot + 17,
                       html_text(columns.back().label));
  }
  return svg + "</svg>\n";
}

}  // namespace berth
