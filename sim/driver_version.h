// The version of the simulated driver. Versions compare in the order of their releases.
#pragma once

#include <compare>
#include <optional>
#include <string_view>

namespace berth::sim {

struct DriverVersion {
  int branch = 0;
  int minor = 0;
  int patch = 0;
  constexpr auto operator<=>(const DriverVersion&) const = default;
};

// Parses "570.86.15" or "418.67": two or three numbers. nullopt: not a version.
std::optional<DriverVersion> parse_driver_version(std::string_view text);

}  // namespace berth::sim
