// The JSON documents of the history: `berth log --json`, `berth report --json`, and
// /api/v1/timeline of `berth serve`. docs/json.md describes them.
#pragma once

#include <string>

#include "archive/history.h"
#include "archive/report_format.h"
#include "archive/timeline.h"
#include "base/json.h"

namespace berth {

// One lease, as one line. `this_host` is the host of an entry that does not name one.
std::string log_json(const HistoryEntry& entry, const std::string& this_host,
                     const CommandVisibility& command_visibility = {});

// `host` is empty for a report of several hosts.
std::string report_json(const Report& report, ReportBy by, const std::string& host,
                        std::size_t damaged_lines,
                        const CommandVisibility& command_visibility = {});

// One line, in ASCII.
std::string timeline_json(const Timeline& timeline);

}  // namespace berth
