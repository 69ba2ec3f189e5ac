// Which process `berth acquire` leases for: the shell that called it, or the one that --for names.
//
// A shell calls berth through forks of itself: $( ), ( ), pipes, < <( ). Such a fork ends at once,
// and a lease that was bound to it would end with it. So the lease is bound to the process that
// the forks came from.
#pragma once

#include <optional>
#include <string>
#include <sys/types.h>

#include "base/result.h"
#include "base/unique_fd.h"

namespace berth {

struct OwnerProcess {
  pid_t pid = 0;
  UniqueFd handle;   // a pidfd of that very process; poll() says POLLIN when it has ended
  std::string name;  // printable() before it is shown
};

// Without `explicit_pid`, the caller: the parent of this process, or where that is a mere fork (no
// exec since) of its own parent, that one, and so on. Errors: ErrorKind::usage if the parent is
// gone or out of sight, or `explicit_pid` is no process that lives; permission if it is another
// user's and we are not root.
Result<OwnerProcess> find_lease_owner(std::optional<pid_t> explicit_pid);

}  // namespace berth
