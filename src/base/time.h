// The type of all points in time that Berth stores or shows.
#pragma once

#include <chrono>

namespace berth {

using TimePoint = std::chrono::time_point<std::chrono::system_clock, std::chrono::nanoseconds>;

}  // namespace berth
