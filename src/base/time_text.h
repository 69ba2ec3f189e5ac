// Times and lengths of time, as tables show them.
#pragma once

#include <chrono>
#include <ctime>
#include <fmt/chrono.h>
#include <string>

#include "base/quantity.h"
#include "base/time.h"

namespace berth {

inline std::tm to_local_tm(TimePoint time) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time.time_since_epoch()).count();
  return fmt::localtime(static_cast<std::time_t>(seconds));
}

// "2026-11-16 08:41:45".
inline std::string format_local_time(TimePoint time) {
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", to_local_tm(time));
}

inline std::string format_local_date(TimePoint time) {
  return fmt::format("{:%Y-%m-%d}", to_local_tm(time));
}

// What is not at least a second is nothing to a reader.
inline std::string format_whole_seconds(std::chrono::nanoseconds time) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(time);
  return whole.count() <= 0 ? "<1s" : format_duration(whole);
}

}  // namespace berth
