// Which part of the history is meant, by `berth log`, `berth report` and the page.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "archive/report.h"
#include "lease/lease_history.h"

namespace berth {

struct HistoryOptions {
  TimePoint since;
  LeaseFilter of;
  std::string gpus;  // a list, or nothing for all
};

// All of the last hours.
HistoryOptions last(std::chrono::hours time);

// From what a user wrote. Errors (ErrorKind::usage) are to be read after the name of the flag.
Result<void> set_since(HistoryOptions& options, std::string_view text);
Result<void> set_user(HistoryOptions& options, std::string_view text);
Result<void> set_host(HistoryOptions& options, std::string_view text);
Result<void> set_gpus(HistoryOptions& options, std::string_view text);

// Is the GPU in the list? By its index as it was then: the driver is not asked, and it may be gone.
bool names_gpu(std::string_view list, std::string_view uuid, std::string_view index);
bool wanted(const HistoryEntry& entry, const HistoryOptions& options);

// Where only one host is known, its name means all of it, and another's nothing.
HistoryOptions settled(HistoryOptions options, const HarbourLocation& where);

// The report of what is selected, with days by this host's clock.
Report reported(const LeaseTable& table, const HistoryOptions& options);

}  // namespace berth
