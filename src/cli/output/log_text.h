// The output of `berth log` as a table.
#pragma once

#include <string>
#include <vector>

#include "archive/history.h"
#include "base/terminal.h"

namespace berth {

// A table with columns as wide as `entries` need; later entries can be added as further lines.
// Refers to `terminal`.
class LogTable {
 public:
  LogTable(const Terminal& terminal, const std::vector<HistoryEntry>& entries, bool several_hosts);

  std::string heading() const;
  std::string line(const HistoryEntry& entry) const;

 private:
  const Terminal& terminal_;
  std::size_t host_width_;  // 0: only one host, and no column
  std::size_t user_width_;
  std::size_t gpus_width_;
};

}  // namespace berth
