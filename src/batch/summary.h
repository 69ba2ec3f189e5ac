// The summary at the end of a batch: failures first.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/terminal.h"
#include "batch/runner.h"

namespace berth::batch {

// The last `count` lines of a file that are not blank, after the offset `begin` (in bytes). Not
// escaped for the terminal. Empty if the file cannot be read.
std::vector<std::string> last_lines(const std::string& path, std::size_t begin, std::size_t count);

std::string format_summary(const BatchPlan& plan, const BatchResult& result,
                           const Terminal& terminal);

}  // namespace berth::batch
