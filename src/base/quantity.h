// Amounts of memory and durations, and their text forms: 512MiB, 8G, 90s, 1d.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace berth {

// An amount of memory. It has its own type so that MiB and bytes cannot be mixed up.
struct Bytes {
  std::uint64_t count = 0;
  auto operator<=>(const Bytes&) const = default;
};

constexpr Bytes mib(std::uint64_t n) {
  return {n << 20};
}
constexpr Bytes gib(std::uint64_t n) {
  return {n << 30};
}

// Saturates at the maximum: a user who writes records with huge numbers must not make a sum wrap.
constexpr std::uint64_t saturating_add(std::uint64_t a, std::uint64_t b) {
  return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

// Not std::lround(): it needs the mathematical library, with which Berth starts more slowly.
constexpr std::uint64_t round_positive(double positive) {
  return static_cast<std::uint64_t>(positive + 0.5);  // NOLINT(bugprone-incorrect-roundings)
}

// Rounded to the nearest MiB, as in every JSON key that ends in _mib.
constexpr std::uint64_t to_mib(Bytes size) {
  return (size.count >> 20) + ((size.count >> 19) & 1);
}

// Accepts "8GiB", "8G" (the same), "1.5 gib", "8GB" (decimal, as in coreutils). The unit is
// required. ErrorKind::usage: `text` is not a size; the message says why.
Result<Bytes> parse_size(std::string_view text);

// Accepts "500ms", "90s", "10 min", "1.5h", "2 days", "1w", several of them ("1h30m"), and
// hours, minutes and seconds ("1:30:00", with days "2-12:00:00"). Errors are as those of
// parse_size().
Result<std::chrono::nanoseconds> parse_duration(std::string_view text);

// "0", "512 MiB", "9.1 GiB": at most three significant digits.
std::string format_size(Bytes size);

// "300ms", "20s", "1.5s", "10m", "2h 5m", "3d 4h": at most two units.
std::string format_duration(std::chrono::nanoseconds time);

}  // namespace berth
