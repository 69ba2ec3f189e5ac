// The output of `berth report` as text.
#pragma once

#include <string>

#include "archive/report_format.h"
#include "base/terminal.h"

namespace berth {

std::string report_text(const Report& report, ReportBy by, const Terminal& terminal);

}  // namespace berth
