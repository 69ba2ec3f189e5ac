// A report of what the archive has, by the clock of this place: for `berth report` and for pages.
#pragma once

#include "archive/report.h"
#include "cli/history_options.h"

namespace berth {

Report reported(const LeaseTable& table, const HistoryOptions& options);

}  // namespace berth
