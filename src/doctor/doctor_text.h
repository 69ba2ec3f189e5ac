// The findings of `berth doctor` as text and as JSON.
#pragma once

#include <string>

#include "base/terminal.h"
#include "doctor/checks.h"

namespace berth {

// A line for each problem and then for each note, with its remedy below it, and a summary that
// counts the checks that are ok. Of more than five findings of one check, the rest is counted. With
// `verbose`, a line for each finding. Escaped and wrapped for `terminal`.
std::string doctor_text(const Findings& findings, const Terminal& terminal, bool verbose);

// One JSON document and a newline, in ASCII. An empty remedy is null.
std::string doctor_json(const Findings& findings);

}  // namespace berth
