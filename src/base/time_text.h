// Times and lengths of time, as tables show them.
#pragma once

#include <chrono>
#include <ctime>
#include <fmt/chrono.h>
#include <string>

#include "base/quantity.h"
#include "base/time.h"

namespace berth {

inline std::tm local_parts(TimePoint time) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time.time_since_epoch()).count();
  return fmt::localtime(static_cast<std::time_t>(seconds));
}

// "2026-11-16 08:41:45".
inline std::string local_time(TimePoint time) {
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", local_parts(time));
}

inline std::string local_day(TimePoint time) {
  return fmt::format("{:%Y-%m-%d}", local_parts(time));
}

// What is not at least a second is nothing to a reader.
inline std::string length_text(std::chrono::nanoseconds time) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(time);
  return whole.count() <= 0 ? "<1s" : format_duration(whole);
}

}  // namespace berth
