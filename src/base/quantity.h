// Sizes of memory and lengths of time, as people write them: 512MiB, 8G, 90s, 1d.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace berth {

// An amount of memory. A type of its own, so that MiB and bytes cannot be mixed up.
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

// What does not fit is the most there is: whoever writes records must not make a sum wrap around.
constexpr std::uint64_t saturating_add(std::uint64_t a, std::uint64_t b) {
  return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

// Not std::lround(): berth would need the mathematical library for it, and start more slowly.
constexpr std::uint64_t round_positive(double positive) {
  return static_cast<std::uint64_t>(positive + 0.5);  // NOLINT(bugprone-incorrect-roundings)
}

// To the nearest MiB, as every JSON key that ends in _mib gives it.
constexpr std::uint64_t to_mib(Bytes size) {
  return (size.count >> 20) + ((size.count >> 19) & 1);
}

// "8GiB", "8G" (the same), "1.5 gib", "8GB" (decimal, as coreutils has it). A number needs its
// unit. The error says what was wrong with `text`; it is ErrorKind::usage.
Result<Bytes> parse_size(std::string_view text);

// "500ms", "90s", "10m", "2h", "1d", "1.5h".
Result<std::chrono::nanoseconds> parse_duration(std::string_view text);

// "0", "512 MiB", "9.1 GiB": for people, three significant digits.
std::string format_size(Bytes size);

// "300ms", "20s", "1.5s", "10m", "2h 5m", "3d 4h": for people, at most two units.
std::string format_duration(std::chrono::nanoseconds time);

}  // namespace berth
