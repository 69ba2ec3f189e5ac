// Fuzzes memory sizes, as users write them.
#include <cmath>

#include "base/quantity.h"
#include "fuzz/fuzz.h"

namespace berth {

void fuzz(std::string_view input) {
  const auto size = parse_size(input);
  if (!size) {
    check(is_printable(size.error().message), "the error is printable");
    check(size.error().message.size() < 1000, "the error is short");
    return;
  }
  const std::string text = format_size(*size);
  check(is_printable(text) && text.size() < 20, "a formatted size is short and printable");
  if (size->count == 0) return;  // "0" has no unit
  const auto again = parse_size(text);
  check(again.has_value(), "what is shown can be parsed");
  const auto before = static_cast<double>(size->count);
  const auto after = static_cast<double>(again->count);
  check(std::abs(after - before) <= 0.051 * before,
        "the formatted size is the parsed one, rounded");
}

}  // namespace berth
