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
constexpr double kSecond = 1e9;  // in nanoseconds
constexpr double kMinute = 60 * kSecond;
constexpr double kHour = 60 * kMinute;
constexpr double kDay = 24 * kHour;
constexpr std::array<Unit, 24> kTimeUnits{{
    {"ms", 1e6},         {"s", kSecond},       {"sec", kSecond},     {"secs", kSecond},
    {"second", kSecond}, {"seconds", kSecond}, {"m", kMinute},       {"min", kMinute},
    {"mins", kMinute},   {"minute", kMinute},  {"minutes", kMinute}, {"h", kHour},
    {"hr", kHour},       {"hrs", kHour},       {"hour", kHour},      {"hours", kHour},
    {"d", kDay},         {"day", kDay},        {"days", kDay},       {"w", 7 * kDay},
    {"wk", 7 * kDay},    {"wks", 7 * kDay},    {"week", 7 * kDay},   {"weeks", 7 * kDay},
}};
constexpr std::string_view kSizeExample = "8GiB or 512MiB";
constexpr std::string_view kTimeExample = "90s, 1h30m or 2d";

constexpr double kMaxQuantity = 9.2e18;  // just below 2^63, in bytes or nanoseconds

void remove_leading_blanks(std::string_view& text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
}

// The error of a text; the end of a sentence that begins with the text.
using Problem = std::string;

// Reads a number and its unit from the front of `text`, and removes both.
template <std::size_t N>
tl::expected<double, Problem> read_part(std::string_view& text, const std::array<Unit, N>& units,
                                        std::string_view example) {
  double number = 0;
  const auto* const end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (problem != std::errc{} || !std::isfinite(number)) {
    return tl::make_unexpected(fmt::format("is not a number with a unit, such as {}", example));
  }
  if (number < 0 || std::signbit(number)) return tl::make_unexpected("is negative");
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  remove_leading_blanks(text);
  if (text.empty()) return tl::make_unexpected(fmt::format("has no unit; write {}", example));
  const std::string unit = lower_case(text.substr(0, text.find_first_of("0123456789 .-+")));
  const auto* const found = std::find_if(
      units.begin(), units.end(), [&](const Unit& candidate) { return candidate.name == unit; });
  if (found == units.end()) {
    return tl::make_unexpected(fmt::format("has an unknown unit; write {}", example));
  }
  text.remove_prefix(unit.size());
  const double value = number * found->factor;
  if (value > kMaxQuantity) return tl::make_unexpected("is too large");
  return value;
}

tl::expected<double, Problem> parse_size_value(std::string_view text) {
  auto value = read_part(text, kSizeUnits, kSizeExample);
  if (value && !text.empty())
    return tl::make_unexpected(fmt::format("has an unknown unit; write {}", kSizeExample));
  return value;
}

// "1:30:00", or with days, as Slurm writes it: "2-12:00:00". nullopt: the text has another form.
std::optional<double> parse_clock_duration(std::string_view text) {
  constexpr std::size_t kMaxDigits = 6;
  const auto number = [](std::string_view digits) -> std::optional<unsigned> {
    return digits.size() > kMaxDigits ? std::nullopt : parse_integer<unsigned>(digits);
  };
  std::optional<unsigned> days = 0;
  const std::size_t dash = text.find('-');
  if (dash != std::string_view::npos) {
    days = number(text.substr(0, dash));
    text.remove_prefix(dash + 1);
  }
  const std::size_t first = text.find(':');
  const std::size_t second = first == std::string_view::npos ? first : text.find(':', first + 1);
  if (second == std::string_view::npos) return std::nullopt;
  const auto hours = number(text.substr(0, first));
  const auto minutes = number(text.substr(first + 1, second - first - 1));
  const auto seconds = number(text.substr(second + 1));
  if (!days || !hours || !minutes || *minutes > 59 || !seconds || *seconds > 59)
    return std::nullopt;
  return *days * kDay + *hours * kHour + *minutes * kMinute + *seconds * kSecond;
}

// Parts may follow each other: "1h30m", "2d 4h".
tl::expected<double, Problem> parse_time_value(std::string_view text) {
  if (const auto clock = parse_clock_duration(text)) return *clock;
  if (text.find(':') != std::string_view::npos)
    return tl::make_unexpected("is not hours, minutes and seconds; write 1:30:00 or 1h30m");
  double total = 0;
  do {
    auto value = read_part(text, kTimeUnits, kTimeExample);
    if (!value) return value;
    total += *value;
    remove_leading_blanks(text);
  } while (!text.empty());
  if (total > kMaxQuantity) return tl::make_unexpected("is too large");
  return total;
}

}  // namespace

Result<Bytes> parse_size(std::string_view text) {
  const auto value = parse_size_value(text);
  if (!value)
    return fail(ErrorKind::usage, fmt::format("size {} {}", in_quotes(text), value.error()));
  return Bytes{round_positive(*value)};
}

Result<std::chrono::nanoseconds> parse_duration(std::string_view text) {
  const auto value = parse_time_value(text);
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
