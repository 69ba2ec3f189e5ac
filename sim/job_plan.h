// How much memory a simulated job uses as time goes by.
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

// "0s:1GiB,2s:4GiB,5s:2GiB": times must rise, and the first is 0.
Result<std::vector<Step>> parse_curve(std::string_view text);

}  // namespace berth::sim
