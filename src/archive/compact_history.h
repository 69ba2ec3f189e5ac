// Reads the history of all users in the compact form for reports: a LeaseTable instead of entries.
//
// Only what is archived; lease/lease_history.h adds the leases that run now.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <sys/types.h>

#include "archive/lease_table.h"
#include "base/result.h"
#include "cluster/redis/url.h"

namespace berth {

struct CompactHistory {
  LeaseTable table;
  std::size_t damaged = 0;  // the number of lines that could not be read
  bool truncated = false;   // the oldest lines were not read; see select_history_files()
  // When the recording of leases began, of all users; nullopt if that is not known. From files: see
  // choose_history_start().
  std::optional<TimePoint> start{};
};

// The leases of this host that ended at `since` or later, of one user or of all.
CompactHistory read_compact_history(const std::string& archive, TimePoint since,
                                    std::optional<uid_t> user);

// The leases of all hosts, from the lines that were sent at `since` or later and pass `filter`.
using EntryViewFilter = std::function<bool(const EntryView& view)>;
Result<CompactHistory> read_compact_history(const RedisUrl& url, TimePoint since,
                                            const EntryViewFilter& filter);

}  // namespace berth
