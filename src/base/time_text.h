// Formats points in time and durations for output.
#pragma once

#include <chrono>
#include <ctime>
#include <string>

#include "base/time.h"

namespace berth {

std::tm to_local_tm(TimePoint time);

// `pattern` is one of strftime(3); numbers only, so that the text does not depend on the locale.
std::string format_local_time(TimePoint time, const char* pattern = "%Y-%m-%d %H:%M:%S");
std::string format_utc_time(TimePoint time, const char* pattern);

// "2026-11-15".
std::string format_local_date(TimePoint time);
// "2026-11-15T23:11:51Z": the format of all times in JSON.
std::string format_iso_time(TimePoint time);

// As format_duration(), in whole seconds; "<1s" if the duration is shorter.
std::string format_whole_seconds(std::chrono::nanoseconds time);

}  // namespace berth
