// Leases in the history: writes an entry when a lease begins or ends, and reads the archive
// together with the leases that are alive now. archive/history.h and archive/compact_history.h read
// the archive alone.
//
// Never write under the harbour's lock, and never write the end of a lease before its release: the
// archive may be slow, full or absent, and then only the history must suffer. In a harbour of
// several hosts each entry is also sent to the server. An entry that cannot be sent now is sent
// later (cluster/store/unsent_history.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "archive/compact_history.h"
#include "archive/history.h"
#include "devices/gpu.h"
#include "harbour/location.h"
#include "harbour/record.h"
#include "profile/usage.h"

namespace berth {

// The history entry of a lease that ends now, or is running now. `gpus` are all GPUs of the host,
// or as many as are known. Leaves the usage out if the lease is running.
HistoryEntry make_history_entry(const Record& lease, const std::vector<Gpu>& gpus, Ending ending,
                                int code = 0, const Usage& measured = {});

// Writes the entry to this user's folder of the archive, and sends it to the server if the harbour
// has several hosts. Reports only errors of the folder.
Result<void> archive_entry(const HarbourLocation& harbour, const HistoryEntry& entry);

// Writes the entries of leases whose holders were found dead. When root removes the leases of other
// users, only plausible leases are written, and only a few of each user: any user can forge the
// files of a lease. An entry that the holder wrote when its lease began is in the history in any
// case.
void archive_dead_leases(const HarbourLocation& harbour, const std::vector<Record>& leases,
                         const std::vector<Gpu>& gpus);

// Selects leases by user and host. Empty members select all.
struct LeaseFilter {
  std::optional<uid_t> uid;
  std::string user;  // the user's name, which identifies the user in a harbour of several hosts
  std::string host;

  bool matches(uid_t lease_uid, std::string_view lease_user, std::string_view lease_host) const;
};

// The entries of the archive, corrected by the leases in the harbour:
// - A lease in the harbour is running, whenever it began and whatever its entry says.
// - A lease that the archive calls running and that is not in the harbour is lost: its end was not
//   recorded.
// With several hosts this includes all of them. A lease on another host is included once that host
// has written that it began.
Result<History> read_merged_history(const HarbourLocation& harbour, TimePoint since,
                                    const EntryFilter& filter);

// The same in the compact form of a report.
Result<CompactHistory> read_merged_leases(const HarbourLocation& harbour, TimePoint since,
                                          const LeaseFilter& filter);

}  // namespace berth
