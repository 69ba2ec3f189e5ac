// What `berth report --json` prints; docs/json.md describes it.
#pragma once

#include <string>

#include "archive/report_format.h"
#include "base/json.h"

namespace berth {

std::string report_json(const Report& report, ReportBy by, const std::string& host,
                        std::size_t damaged_lines,
                        const CommandVisibility& command_visibility = {});

}  // namespace berth
