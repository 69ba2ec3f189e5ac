// The output of `berth log` as a table.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "archive/history.h"
#include "base/terminal.h"

namespace berth {

struct LogTableOptions {
  TimePoint now;               // a time of this year is shown without the year
  bool several_hosts = false;  // a column for the host is needed
  bool more_follow = false;    // entries will follow that are not known yet
};

// A table with columns as wide as `entries` need. On a terminal the time has no year and no seconds
// where they say nothing, a column that says nothing is left out, and so are the wait and the
// memory if there is too little room for the command. Refers to `terminal`.
class LogTable {
 public:
  LogTable(const Terminal& terminal, const std::vector<HistoryEntry>& entries,
           const LogTableOptions& options);

  std::string heading() const;
  std::string line(const HistoryEntry& entry) const;

 private:
  // In the order of the line.
  enum Column : std::size_t { granted, lasted, waited, host, user, gpus, memory, end, count };
  using Cells = std::array<std::string, Column::count>;

  Cells make_cells(const HistoryEntry& entry) const;
  std::string join_cells(const Cells& cells, Style end_style) const;
  std::size_t room_for_command() const;

  const Terminal& terminal_;
  TimePoint now_;
  std::array<std::size_t, Column::count> widths_{};  // 0: the column is left out
};

}  // namespace berth
