// Parses memory curves; see job_plan.h.
#include "sim/job_plan.h"

#include <fmt/format.h>

#include "base/text.h"

namespace berth::sim {

Result<std::vector<Step>> parse_curve(std::string_view text) {
  std::vector<Step> steps;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find(',', start), text.size());
    const auto step = text.substr(start, end - start);
    const std::size_t colon = step.find(':');
    if (colon == std::string_view::npos) {
      return fail(ErrorKind::usage,
                  fmt::format("step {} has no colon; write steps such as 0s:1GiB,2s:4GiB",
                              in_quotes(step)));
    }
    const std::chrono::nanoseconds at = TRY(parse_duration(step.substr(0, colon)));
    const Bytes memory = TRY(parse_size(step.substr(colon + 1)));
    if (steps.empty() ? at.count() != 0 : at <= steps.back().at) {
      return fail(ErrorKind::usage,
                  fmt::format("step {}: times must start at 0s and increase", in_quotes(step)));
    }
    steps.push_back({at, memory});
    start = end + 1;
  }
  return steps;
}

}  // namespace berth::sim
