// What `berth log --json` prints; docs/json.md describes it.
#pragma once

#include <string>

#include "archive/history.h"
#include "base/json.h"

namespace berth {

// One lease, as one line. `this_host` is whose it is if the entry does not say.
std::string log_json(const HistoryEntry& entry, const std::string& this_host,
                     const CommandVisibility& command_visibility = {});

}  // namespace berth
