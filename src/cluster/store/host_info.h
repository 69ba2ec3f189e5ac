// What a host of a shared harbour publishes: its GPUs and their processes at one moment.
//
// Commands that read the GPUs publish it, so that no daemon is needed. Leases, tickets and drains
// are not part of it: they are in the harbour itself, and always current.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "status/host_view.h"

namespace berth {

struct HostInfo {
  std::optional<std::string> driver;  // version of the driver
  bool simulated = false;
  std::vector<GpuWithLeases> gpus;  // without their leases and drains
};

// The GPUs of `view` as JSON.
std::string format_host_info(const HostView& view, const std::optional<std::string>& driver,
                             bool simulated);
// The text may be from any client with the URL. Values that are missing or invalid are unknown.
// Fails with ErrorKind::io if it is not the information of a host.
Result<HostInfo> parse_host_info(std::string_view text);

}  // namespace berth
