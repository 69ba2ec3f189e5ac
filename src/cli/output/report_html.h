// `berth report --html`: one page that needs nothing else, with plots and their tables.
#pragma once

#include <string>

#include "archive/report_format.h"

namespace berth {

std::string report_html(const Report& report, ReportBy by, const std::string& host);

}  // namespace berth
