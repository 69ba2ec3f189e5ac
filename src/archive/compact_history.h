// Reads the history of all users into a LeaseTable, for reports. Uses several threads.
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
  std::size_t damaged = 0;  // the number of lines that could not be read
  bool truncated = false;   // the oldest lines were not read; see select_history_files()
};

// The leases of this host that ended at `since` or later, of one user or of all.
LeaseHistory read_lease_history(const std::string& archive, TimePoint since,
                                std::optional<uid_t> user);

// The leases of all hosts, from the lines that were sent at `since` or later and pass `filter`.
using EntryViewFilter = std::function<bool(const EntryView& view)>;
Result<LeaseHistory> read_lease_history(const RedisUrl& url, TimePoint since,
                                        const EntryViewFilter& filter);

}  // namespace berth
