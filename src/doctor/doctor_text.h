// The findings of `berth doctor` as text and as JSON.
#pragma once

#include <string>

#include "base/terminal.h"
#include "doctor/checks.h"

namespace berth {

// A line for each finding, the remedy below it, and a summary; escaped and wrapped for `terminal`.
std::string doctor_text(const Findings& findings, const Terminal& terminal);

// One JSON document and a newline, in ASCII. An empty remedy is null.
std::string doctor_json(const Findings& findings);

}  // namespace berth
