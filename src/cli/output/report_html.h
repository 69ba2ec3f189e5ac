// The page of `berth report --html`: one self-contained HTML file with plots and tables.
#pragma once

#include <string>

#include "archive/report_format.h"

namespace berth {

std::string report_html(const Report& report, ReportBy by, const std::string& host);

}  // namespace berth
