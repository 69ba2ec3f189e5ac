// Formats points in time and durations for output.
#pragma once

#include <chrono>
#include <ctime>
#include <fmt/chrono.h>
#include <string>

#include "base/quantity.h"
#include "base/time.h"

namespace berth {

inline std::time_t to_time_t(TimePoint time) {
  return std::chrono::floor<std::chrono::seconds>(time.time_since_epoch()).count();
}

inline std::tm to_local_tm(TimePoint time) {
  return fmt::localtime(to_time_t(time));
}

// "2026-11-16 08:41:45".
inline std::string format_local_time(TimePoint time) {
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", to_local_tm(time));
}

inline std::string format_local_date(TimePoint time) {
  return fmt::format("{:%Y-%m-%d}", to_local_tm(time));
}

// "2026-11-15T23:11:51Z": the format of all times in JSON.
inline std::string format_iso_time(TimePoint time) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(to_time_t(time)));
}

// As format_duration(), in whole seconds; "<1s" if the duration is shorter.
inline std::string format_whole_seconds(std::chrono::nanoseconds time) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(time);
  return whole.count() <= 0 ? "<1s" : format_duration(whole);
}

}  // namespace berth
