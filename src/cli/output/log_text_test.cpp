// Unit tests of the table of `berth log`: it depends on its arguments only.
#include "cli/output/log_text.h"

#include <gtest/gtest.h>

#include "base/time_text.h"

namespace berth {
namespace {

TEST(LogTable, a_time_of_another_year_has_its_year) {
  const TimePoint now{std::chrono::hours(24 * 365 * 40 + 24 * 100)};  // in 2010
  HistoryEntry entry;
  entry.asked = entry.granted = entry.ended = now - std::chrono::hours(24);
  entry.ending = Ending::exited;
  Terminal terminal;
  terminal.width = 120;
  const std::vector<HistoryEntry> entries{entry};
  const auto line_at = [&](TimePoint time) {
    return LogTable(terminal, entries, {time}).line(entry);
  };
  const std::string of_this_year = format_local_time(entry.granted, "%m-%d %H:%M");
  const std::string of_another_year = format_local_time(entry.granted, "%Y-%m-%d");
  EXPECT_TRUE(line_at(now).starts_with(of_this_year)) << line_at(now);
  const TimePoint later = now + std::chrono::hours(24 * 365);
  EXPECT_TRUE(line_at(later).starts_with(of_another_year)) << line_at(later);
}

}  // namespace
}  // namespace berth
