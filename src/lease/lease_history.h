// Telling the archive of leases.
//
// Never under the harbour's lock, and never before the release that it tells of: the archive may be
// slow, full or not there, and then nothing but the history is lost. In a harbour of several hosts
// each line is also sent to its server; what cannot be sent now is sent later
// (cluster/store/unsent_history.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "archive/history.h"
#include "archive/read_leases.h"
#include "devices/gpu.h"
#include "harbour/location.h"
#include "harbour/record.h"
#include "profile/usage.h"

namespace berth {

// As it is now, at this moment: `gpus` is every GPU of the host, or as many as are known. Of one
// that is running, nothing is told of its usage.
HistoryEntry make_history_entry(const Record& lease, const std::vector<Gpu>& gpus, Ending ending,
                                int code = 0, const Usage& measured = {});

// Writes it into this user's folder, and sends it where the harbour is of several hosts. The result
// tells of the folder.
Result<void> archive_entry(const HarbourLocation& harbour, const HistoryEntry& entry);

// Leases whose holders were found dead. Of other users' (root clears them away) only plausible
// ones, and not more than a few of each user: their files may be planted. What a holder has written
// itself when its lease began is in the history anyway.
void archive_dead_leases(const HarbourLocation& harbour, const std::vector<Record>& leases,
                         const std::vector<Gpu>& gpus);

// Whose leases are meant; nothing: all.
struct LeaseFilter {
  std::optional<uid_t> uid;
  std::string user;  // his name, which counts in a harbour of several hosts
  std::string host;

  bool matches(uid_t lease_uid, std::string_view lease_user, std::string_view lease_host) const;
};

// What the archive and the harbour know together. What is in the harbour is running, whenever it
// began and whatever is written. What is written as running and is not in the harbour any more is
// lost: nobody has seen its end. Of several hosts, of each: what runs elsewhere is shown once its
// host has written that it began.
Result<History> read_merged_history(const HarbourLocation& harbour, TimePoint since,
                                    const EntryFilter& filter);

// The same for a report.
Result<LeaseHistory> read_merged_leases(const HarbourLocation& harbour, TimePoint since,
                                        const LeaseFilter& filter);

}  // namespace berth
