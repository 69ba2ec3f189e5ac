// Plots for a page: inline SVG that is as wide as there is room, with text that does not shrink.
//
// Places are in percent of the width, so no script is needed for a plot to fit a phone. Colours are
// the page's: the classes used, idle, shared, mark.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace berth {

// Text from anywhere, made fit to stand in a page, in an attribute too: nothing in it is markup,
// invisible, or changes the direction of what is around it.
std::string html_text(std::string_view text);

struct PlotBar {
  std::string label;  // as it came
  std::string value;  // for people: "12.3"
  double used = 0;    // these stand behind each other
  double idle = 0;
  double shared = 0;

  double sum() const { return used + idle + shared; }
};

// Bars below each other, each with its label and value. `title` says what it shows, to those who
// cannot see it.
std::string bar_plot(std::string_view title, const std::vector<PlotBar>& bars);

// Columns beside each other; only the first and the last have their labels written, all have them
// under the pointer. `max_value` is what fills the whole height, and `max_label` says it.
std::string column_plot(std::string_view title, const std::vector<PlotBar>& columns,
                        double max_value, std::string_view max_label);

}  // namespace berth
