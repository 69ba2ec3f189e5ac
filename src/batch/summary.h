// What is said when a batch has ended: failures first.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/terminal.h"
#include "batch/runner.h"

namespace berth::batch {

// The last lines of a file that are not empty, of what stands behind `begin` (bytes); not yet made
// fit for a terminal.
std::vector<std::string> last_lines(const std::string& path, std::size_t begin, std::size_t count);

std::string format_summary(const BatchPlan& plan, const BatchResult& result,
                           const Terminal& terminal);

}  // namespace berth::batch
