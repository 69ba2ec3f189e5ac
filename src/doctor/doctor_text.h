// `berth doctor` for people, and as JSON.
#pragma once

#include <string>

#include "base/terminal.h"
#include "doctor/checks.h"

namespace berth {

// One line per finding, what to do about it below, and a summary; whole lines, fit for `terminal`.
std::string doctor_text(const Findings& findings, const Terminal& terminal);

// A document and a newline, in ASCII. A finding without a remedy has null.
std::string doctor_json(const Findings& findings);

}  // namespace berth
