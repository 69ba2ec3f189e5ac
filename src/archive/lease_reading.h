// Everybody's history, read for a report: fast, by several threads.
#pragma once

#include <optional>
#include <string>
#include <sys/types.h>

#include "archive/lease_table.h"

namespace berth {

struct LeaseHistory {
  LeaseTable table;
  std::size_t damaged = 0;  // lines
};

// What ended at `since` or later, of one user or of all.
LeaseHistory read_leases(const std::string& archive, TimePoint since, std::optional<uid_t> user);

}  // namespace berth
