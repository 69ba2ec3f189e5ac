// Plots for an HTML page: inline SVG as wide as its container, with text of constant size.
//
// Positions are in percent of the width, so a plot fits a phone without a script. The page defines
// the colours, by the classes of the segments and the class mark of lines.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace berth {

// Escapes untrusted text for a page, also inside an attribute: the result contains no markup, no
// invisible characters, and nothing that changes the direction of the text around it.
std::string html_text(std::string_view text);

struct PlotSegment {
  const char* kind;  // the class of its colour
  double value;
};

// A bar or column; its segments are drawn one after the other.
struct PlotBar {
  std::string label;  // not escaped
  std::string value;  // for people: "12.3 GPU-hours"
  std::vector<PlotSegment> segments;
  std::string tick{};  // a short label for the axis

  double sum() const;
};

// A horizontal bar without text, for a cell of a table. `max_value` fills the whole width.
std::string bar_plot(const PlotBar& bar, double max_value);

// Columns beside each other, with a vertical axis from 0 to at least `max_value` and a horizontal
// axis that has the ticks of some columns. The labels and values appear under the pointer. `title`
// describes the plot for screen readers. Labels of the vertical axis are to the left of the image.
std::string column_plot(std::string_view title, const std::vector<PlotBar>& columns,
                        double max_value);

}  // namespace berth
