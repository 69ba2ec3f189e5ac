// When leases end, and when the next GPU becomes free. Nothing enforces these times.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "devices/gpu.h"
#include "harbour/record.h"
#include "status/host_view.h"

namespace berth {

enum class EndSource : std::uint8_t {
  announced,  // by the user (--time)
  estimated,  // from earlier runs of the same job type
};

std::string_view to_string(EndSource source);

struct LeaseEnd {
  TimePoint at;
  EndSource source = EndSource::announced;
  bool overdue = false;  // the time has passed
  bool operator==(const LeaseEnd&) const = default;
};

// Nothing if the user announced no run time and none is known from earlier runs.
std::optional<LeaseEnd> find_lease_end(const Record& lease, TimePoint now);

// When the last of these leases ends: an overdue end if there is one, and nothing if one of the
// ends is unknown. It is an estimate if one of the ends is.
std::optional<LeaseEnd> find_last_end(const std::vector<const Record*>& leases, TimePoint now);

// The GPUs that become free first, all at the same time.
struct NextFree {
  std::vector<GpuIndex> gpus;
  TimePoint at;
  EndSource source = EndSource::announced;  // estimated if one of the ends is
  bool operator==(const NextFree&) const = default;
};

// Considers the GPUs that match `request`, or all without one. Nothing if such a GPU is free
// already, or no end is known. A GPU becomes free when the last of its leases ends; that time is
// unknown if one of them is overdue or has no known end, or if a stranger uses the GPU.
std::optional<NextFree> find_next_free(const HostView& view, TimePoint now,
                                       const Request* request = nullptr);

}  // namespace berth
