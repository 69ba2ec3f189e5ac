// What `berth log --json` prints; docs/json.md describes it.
#pragma once

#include <string>

#include "archive/history.h"

namespace berth {

// One lease, as one line.
std::string log_json(const HistoryEntry& entry);

}  // namespace berth
