// Parses and formats sizes and durations; see quantity.h.
#include "base/quantity.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <optional>

#include "base/text.h"

namespace berth {
namespace {

struct Unit {
  std::string_view name;  // lower case
  double factor;
};

constexpr double kKi = 1024.0;
constexpr std::array<Unit, 17> kSizeUnits{{
    {"b", 1},
    {"k", kKi},
    {"ki", kKi},
    {"kib", kKi},
    {"kb", 1e3},
    {"m", kKi* kKi},
    {"mi", kKi* kKi},
    {"mib", kKi* kKi},
    {"mb", 1e6},
    {"g", kKi* kKi* kKi},
    {"gi", kKi* kKi* kKi},
    {"gib", kKi* kKi* kKi},
    {"gb", 1e9},
    {"t", kKi* kKi* kKi* kKi},
    {"ti", kKi* kKi* kKi* kKi},
    {"tib", kKi* kKi* kKi* kKi},
    {"tb", 1e12},
}};
constexpr std::array<Unit, 5> kTimeUnits{{
    {"ms", 1e6},
    {"s", 1e9},
    {"m", 60e9},
    {"h", 3600e9},
    {"d", 86400e9},
}};

constexpr double kMaxQuantity = 9.2e18;  // just below 2^63, in bytes or nanoseconds

// The number multiplied by its unit. The error is the end of a sentence that begins with the text.
template <std::size_t N>
tl::expected<double, std::string> parse_quantity(std::string_view text,
                                                 const std::array<Unit, N>& units,
                                                 std::string_view example) {
  double number = 0;
  const auto* end = text.data() + text.size();
  auto [rest, problem] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (problem != std::errc{} || !std::isfinite(number)) {
    return tl::make_unexpected(fmt::format("is not a number with a unit, such as {}", example));
  }
  if (number < 0 || std::signbit(number)) return tl::make_unexpected("is negative");
  while (rest != end && *rest == ' ') ++rest;
  if (rest == end) return tl::make_unexpected(fmt::format("has no unit; write {}", example));
  const std::string unit = lower_case({rest, end});
  const auto* found = std::find_if(units.begin(), units.end(),
                                   [&](const Unit& candidate) { return candidate.name == unit; });
  if (found == units.end()) {
    return tl::make_unexpected(fmt::format("has an unknown unit; write {}", example));
  }
  const double value = number * found->factor;
  if (value > kMaxQuantity) return tl::make_unexpected("is too large");
  return value;
}

}  // namespace

Result<Bytes> parse_size(std::string_view text) {
  const auto value = parse_quantity(text, kSizeUnits, "8GiB or 512MiB");
  if (!value)
    return fail(ErrorKind::usage, fmt::format("size {} {}", in_quotes(text), value.error()));
  return Bytes{round_positive(*value)};
}

Result<std::chrono::nanoseconds> parse_duration(std::string_view text) {
  const auto value = parse_quantity(text, kTimeUnits, "90s, 10m or 2h");
  if (!value) {
    return fail(ErrorKind::usage, fmt::format("duration {} {}", in_quotes(text), value.error()));
  }
  return std::chrono::nanoseconds{round_positive(*value)};
}

std::string format_size(Bytes size) {
  constexpr std::array<std::string_view, 5> names{"B", "KiB", "MiB", "GiB", "TiB"};
  auto amount = static_cast<double>(size.count);
  std::size_t unit = 0;
  while (amount >= 999.5 && unit + 1 < names.size()) {
    amount /= 1024;
    ++unit;
  }
  if (size.count == 0) return "0";
  // Three significant digits, without a trailing ".0": "9.1 GiB", "24 GiB", "512 MiB".
  const int decimals = unit == 0 || amount >= 99.95 ? 0 : 1;
  std::string digits = fmt::format("{:.{}f}", amount, decimals);
  if (digits.ends_with(".0")) digits.resize(digits.size() - 2);
  return fmt::format("{} {}", digits, names[unit]);
}

std::string format_duration(std::chrono::nanoseconds time) {
  using namespace std::chrono;
  if (time < seconds(1) && time > nanoseconds::zero()) {
    return fmt::format("{}ms", std::max(duration_cast<milliseconds>(time).count(), 1L));
  }
  if (time < seconds(10) && time % seconds(1) != nanoseconds::zero()) {
    std::string digits = fmt::format("{:.1f}", duration<double>(time).count());
    if (digits.ends_with(".0")) digits.resize(digits.size() - 2);
    return digits + "s";
  }
  const auto total = duration_cast<seconds>(time).count();
  struct TimeUnit {
    long long seconds;
    char name;
  };
  constexpr std::array<TimeUnit, 4> units{{{86400, 'd'}, {3600, 'h'}, {60, 'm'}, {1, 's'}}};
  for (std::size_t i = 0; i < units.size(); ++i) {
    const auto& unit = units[i];
    if (total < unit.seconds && unit.name != 's') continue;
    std::string out = fmt::format("{}{}", total / unit.seconds, unit.name);
    if (i + 1 < units.size()) {
      const auto rest = total % unit.seconds / units[i + 1].seconds;
      if (rest > 0) out += fmt::format(" {}{}", rest, units[i + 1].name);
    }
    return out;
  }
  return "0s";
}

}  // namespace berth
