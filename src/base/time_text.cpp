// Formats points in time and durations; see time_text.h.
#include "base/time_text.h"

#include <array>

#include "base/quantity.h"

namespace berth {
namespace {

std::time_t to_time_t(TimePoint time) {
  return std::chrono::floor<std::chrono::seconds>(time.time_since_epoch()).count();
}

std::string format_tm(const std::tm& time, const char* pattern) {
  std::array<char, 64> text{};
  return {text.data(), std::strftime(text.data(), text.size(), pattern, &time)};
}

}  // namespace

std::tm to_local_tm(TimePoint time) {
  const std::time_t seconds = to_time_t(time);
  std::tm result{};
  ::localtime_r(&seconds, &result);
  return result;
}

std::string format_local_time(TimePoint time, const char* pattern) {
  return format_tm(to_local_tm(time), pattern);
}

// Not gmtime_r(), which reads /etc/localtime first.
std::string format_utc_time(TimePoint time, const char* pattern) {
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(std::chrono::floor<std::chrono::seconds>(time - day));
  std::tm result{};
  result.tm_year = static_cast<int>(date.year()) - 1900;
  result.tm_mon = static_cast<int>(static_cast<unsigned>(date.month())) - 1;
  result.tm_mday = static_cast<int>(static_cast<unsigned>(date.day()));
  result.tm_hour = static_cast<int>(clock.hours().count());
  result.tm_min = static_cast<int>(clock.minutes().count());
  result.tm_sec = static_cast<int>(clock.seconds().count());
  return format_tm(result, pattern);
}

std::string format_local_date(TimePoint time) {
  return format_local_time(time, "%Y-%m-%d");
}

std::string format_iso_time(TimePoint time) {
  return format_utc_time(time, "%Y-%m-%dT%H:%M:%SZ");
}

std::string format_whole_seconds(std::chrono::nanoseconds time) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(time);
  return whole.count() <= 0 ? "<1s" : format_duration(whole);
}

}  // namespace berth
