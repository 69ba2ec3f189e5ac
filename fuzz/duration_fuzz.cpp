// Fuzzes durations, as users write them.
#include <algorithm>
#include <cmath>

#include "base/quantity.h"
#include "fuzz/fuzz.h"

namespace berth {

void fuzz(std::string_view input) {
  const auto time = parse_duration(input);
  if (!time) {
    check(is_printable(time.error().message), "the error is printable");
    check(time.error().message.size() < 1000, "the error is short");
    return;
  }
  check(time->count() >= 0, "no duration is negative");
  const std::string text = format_duration(*time);
  check(is_printable(text) && text.size() < 30, "a formatted duration is short and printable");
  // One or two units: "2h 5m".
  std::chrono::nanoseconds sum{0};
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    const auto value = parse_duration(part);
    check(value.has_value(), "each unit that is shown can be parsed");
    sum += *value;
  }
  const auto before = static_cast<double>(time->count());
  const auto after = static_cast<double>(sum.count());
  constexpr double kMillisecond = 1e6;  // the smallest unit in output
  check(std::abs(after - before) <= 0.1 * before + kMillisecond,
        "the formatted duration is the parsed one, rounded");
}

}  // namespace berth
