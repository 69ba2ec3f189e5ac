// The memory that a simulated job uses over time.
#pragma once

#include <chrono>
#include <string_view>
#include <vector>

#include "base/quantity.h"
#include "base/result.h"

namespace berth::sim {

struct Step {
  std::chrono::nanoseconds at{0};  // since the job's start
  Bytes memory;
};

// Parses "0s:1GiB,2s:4GiB,5s:2GiB". The first time is 0, and the times increase.
Result<std::vector<Step>> parse_curve(std::string_view text);

}  // namespace berth::sim
