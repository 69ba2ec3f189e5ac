// The output of `berth report --csv`: one table for spreadsheets.
#pragma once

#include <string>
#include <string_view>

#include "archive/report_format.h"

namespace berth {

// Untrusted text as a field of a CSV file (RFC 4180), in quotes if it needs them. Control
// characters are escaped. A text that a spreadsheet would read as a formula gets an apostrophe in
// front.
std::string csv_field(std::string_view text);

// A header, a row for the whole report, and a row for each user, job, GPU and day, or only for
// those that `by` selects. The columns are the same in each case; a value that is not known is
// empty.
std::string report_csv(const Report& report, ReportBy by);

}  // namespace berth
