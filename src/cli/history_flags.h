// The flags that `berth log` and `berth report` share.
#pragma once

#include <cstddef>

#include "cli/flags.h"
#include "lease/history_filter.h"

namespace berth {

// Declares --since, --user, --host and --gpu. `options` must outlive the parsing.
void add_history_flags(Flags& command, HistoryFilter& options, const char* since_help);

// Prints what was left out, if anything: damaged lines, and leases beyond the read limit.
void warn_about_omitted_history(std::size_t damaged, bool truncated, const HarbourLocation& where);

}  // namespace berth
