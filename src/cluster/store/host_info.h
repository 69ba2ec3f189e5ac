// What a host of a shared harbour tells the others of itself: its GPUs, as they were at a moment.
//
// Every command that looks at the GPUs leaves it behind, so no daemon is needed; what is leased,
// who waits and what is drained is in the harbour itself, and always as of now.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "status/host_view.h"

namespace berth {

struct HostInfo {
  std::optional<std::string> driver;  // its version
  bool simulated = false;
  std::vector<GpuWithLeases> gpus;  // without their leases and drains
};

// As JSON; docs/redis.md describes it.
std::string format_host_info(const HostView& view, const std::optional<std::string>& driver,
                             bool simulated);
// The error says what is wrong.
Result<HostInfo> parse_host_info(std::string_view text);

}  // namespace berth
