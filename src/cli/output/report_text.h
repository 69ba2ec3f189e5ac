// What `berth report` prints for people.
#pragma once

#include <string>

#include "archive/report_format.h"
#include "base/terminal.h"

namespace berth {

std::string report_text(const Report& report, ReportBy by, const Terminal& terminal);

}  // namespace berth
