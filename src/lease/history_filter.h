// Which part of the history is meant, by `berth log`, `berth report` and the page.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "archive/report.h"
#include "lease/lease_history.h"

namespace berth {

struct HistoryFilter {
  TimePoint since;
  LeaseFilter lease_filter;
  std::string gpus;  // a list, or nothing for all
};

// All of the last hours.
HistoryFilter make_recent_filter(std::chrono::hours time);

// From what a user wrote. Errors (ErrorKind::usage) are to be read after the name of the flag.
Result<void> set_since(HistoryFilter& filter, std::string_view text);
Result<void> set_user(HistoryFilter& filter, std::string_view text);
Result<void> set_host(HistoryFilter& filter, std::string_view text);
Result<void> set_gpus(HistoryFilter& filter, std::string_view text);

// Is the GPU in the list? By its index as it was then: the driver is not asked, and it may be gone.
bool is_gpu_in_list(std::string_view list, std::string_view uuid, std::string_view index);
bool matches_history_filter(const HistoryEntry& entry, const HistoryFilter& filter);

// Where only one host is known, its name means all of it, and another's nothing.
HistoryFilter resolve_host_filter(HistoryFilter filter, const HarbourLocation& location);

// The report of what is selected, with days by this host's clock.
Report make_filtered_report(const LeaseTable& table, const HistoryFilter& filter);

}  // namespace berth
