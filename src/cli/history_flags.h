// The flags that `berth log` and `berth report` share.
#pragma once

#include <cstddef>

#include "cli/flags.h"
#include "lease/history_filter.h"

namespace berth {

// Declares --since, --user, --host and --gpu. `options` lives as long as the command.
void add_history_flags(Flags& command, HistoryFilter& options, const char* since_help);

// Says what was left out, if anything was: damaged lines, and what was too much to read.
void warn_about_omitted_history(std::size_t damaged, bool truncated, const HarbourLocation& where);

}  // namespace berth
