// The part of the history that `berth log`, `berth report` and the page of `berth serve` show.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "archive/report.h"
#include "lease/lease_history.h"

namespace berth {

struct HistoryFilter {
  TimePoint since;
  LeaseFilter lease_filter;
  std::string gpus;  // indices and UUIDs, as join_gpu_list() returns them; empty: all
};

// All leases since `time` ago.
HistoryFilter make_recent_filter(std::chrono::hours time);

// Set a part of the filter from the user's text. Errors are ErrorKind::usage, with messages that
// follow the name of the flag.
Result<void> set_since(HistoryFilter& filter, std::string_view text);
Result<void> set_user(HistoryFilter& filter, std::string_view text);
Result<void> set_host(HistoryFilter& filter, std::string_view text);
Result<void> set_gpus(HistoryFilter& filter, std::string_view text);

// True if the list has the UUID or the index. `index` is the one that the GPU had then: the driver
// is not asked, and the GPU may be gone.
bool is_gpu_in_list(std::string_view list, std::string_view uuid, std::string_view index);
bool matches_history_filter(const HistoryEntry& entry, const HistoryFilter& filter);

// In a harbour of one host, history entries have no host name. So a filter for this host's name
// becomes a filter for all hosts, and a filter for another name matches nothing.
HistoryFilter resolve_host_filter(HistoryFilter filter, const HarbourLocation& location);

// The report of the leases that the filter selects, with days in this host's time zone. `present`
// are the GPUs that the hosts have now; empty: unknown.
Report make_filtered_report(const CompactHistory& history, const HistoryFilter& filter,
                            const std::vector<GpuIdentity>& present);

}  // namespace berth
