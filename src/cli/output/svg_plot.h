// Plots for an HTML page: inline SVG as wide as its container, with text of constant size.
//
// Positions are in percent of the width, so a plot fits a phone without a script. The page defines
// the colours, by the classes used, idle, shared and mark.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace berth {

// Escapes untrusted text for a page, also inside an attribute: the result contains no markup, no
// invisible characters, and nothing that changes the direction of the text around it.
std::string html_text(std::string_view text);

struct PlotBar {
  std::string label;  // not escaped
  std::string value;  // for people: "12.3"
  double used = 0;    // the three are drawn one after the other
  double idle = 0;
  double shared = 0;

  double sum() const { return used + idle + shared; }
};

// Bars below each other, each with its label and value. `title` describes the plot for screen
// readers.
std::string bar_plot(std::string_view title, const std::vector<PlotBar>& bars);

// Columns beside each other. Only the first and the last label are written; the others appear under
// the pointer. `max_value` fills the whole height, and `max_label` names it.
std::string column_plot(std::string_view title, const std::vector<PlotBar>& columns,
                        double max_value, std::string_view max_label);

}  // namespace berth
