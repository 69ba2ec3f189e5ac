// What `berth log` prints for people.
#pragma once

#include <string>
#include <vector>

#include "archive/history.h"
#include "base/terminal.h"

namespace berth {

// A table whose columns are as wide as its first entries need, and to which lines can be added.
class LogTable {
 public:
  LogTable(const Terminal& terminal, const std::vector<HistoryEntry>& entries, bool several_hosts);

  std::string heading() const;
  std::string line(const HistoryEntry& entry) const;

 private:
  const Terminal& terminal_;
  std::size_t host_width_;  // 0: there is only one
  std::size_t user_width_;
  std::size_t gpus_width_;
};

}  // namespace berth
