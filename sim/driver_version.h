// The version of the driver that is simulated, in the order in which versions came out.
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

// "570.86.15" or "418.67": two or three numbers. Nothing else is a version.
std::optional<DriverVersion> parse_driver_version(std::string_view text);

}  // namespace berth::sim
