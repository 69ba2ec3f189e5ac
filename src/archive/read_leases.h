// Everybody's history, read for a report: fast, by several threads.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <sys/types.h>

#include "archive/lease_table.h"
#include "base/result.h"
#include "cluster/redis/url.h"

namespace berth {

struct LeaseHistory {
  LeaseTable table;
  std::size_t damaged = 0;  // lines
  bool truncated = false;   // more was written than was read; see select_history_files()
};

// What ended at `since` or later, of one user or of all.
LeaseHistory read_leases(const std::string& archive, TimePoint since, std::optional<uid_t> user);

// Of all hosts, those lines that are wanted, from what was sent at `since` on.
using EntryViewFilter = std::function<bool(const EntryView& view)>;
Result<LeaseHistory> read_leases(const RedisUrl& url, TimePoint since,
                                 const EntryViewFilter& filter);

}  // namespace berth
