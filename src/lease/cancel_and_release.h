// Ends tickets ('berth cancel') and the leases of shells ('berth release') from another process. A
// holder ends its own lease with Lease::release().
//
// Each function checks all its arguments under the harbour's lock before it changes anything: if
// one ticket or lease is refused, none is ended. None of them creates a harbour. Users may end
// their own tickets and leases; root may end those of all users.
#pragma once

#include <functional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "base/result.h"
#include "harbour/record.h"

namespace berth {

// Removes the tickets from the queue and returns them. Their clients stop waiting with
// ErrorKind::not_granted. ErrorKind::usage: there is no such ticket. ErrorKind::permission: it
// belongs to another user.
Result<std::vector<Record>> cancel_tickets(const std::vector<std::string>& ids);

struct NamedGpu {
  std::string uuid;
  std::string index;  // as messages show it
};

// Releases leases of shells and returns them: the leases `ids`, and all leases of this user's
// shells on one of `gpus`. A job's lease ends with the job; here it is refused with
// ErrorKind::usage, and the message names the processes that hold it. ErrorKind::permission: the
// lease belongs to another user.
Result<std::vector<Record>> release_leases(const std::vector<std::string>& ids,
                                           const std::vector<NamedGpu>& gpus);

// Releases all leases of this user's shells that `filter` accepts. Without such a lease the result
// is empty. `filter` is called under the harbour's lock.
Result<std::vector<Record>> release_own_leases(const std::function<bool(const Record&)>& filter =
                                                   [](const Record&) { return true; });

// Releases the lease that BERTH_LEASE names, or nothing if that lease has ended. Without
// BERTH_LEASE, releases the lease of the process `shell`, or the only lease of this user's shells
// if `shell` has none; ErrorKind::usage if there is not exactly one. Leases of adopted processes do
// not count: they are not the shell's.
Result<std::vector<Record>> release_current_lease(pid_t shell);

}  // namespace berth
