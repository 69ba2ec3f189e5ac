// The clock of everything that is written down.
#pragma once

#include <chrono>

namespace berth {

using TimePoint = std::chrono::time_point<std::chrono::system_clock, std::chrono::nanoseconds>;

}  // namespace berth
