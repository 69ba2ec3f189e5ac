// Finds the process that a lease of `berth acquire` belongs to: the shell that called berth, or the
// process that --for names.
//
// A shell calls berth through forks of itself: $( ), ( ), pipes, < <( ). Such a fork ends at once,
// and a lease bound to it would end with it. So the lease is bound to the process that the forks
// came from.
#pragma once

#include <optional>
#include <string>
#include <sys/types.h>

#include "base/result.h"
#include "base/unique_fd.h"

namespace berth {

struct OwnerProcess {
  pid_t pid = 0;
  UniqueFd handle;   // a pidfd; readable for poll() when the process has ended
  std::string name;  // chosen by the process: pass it through printable() before it is shown
};

// Without `explicit_pid`: the parent of this process; or, if that is a mere fork (no exec since) of
// its own parent, that parent, and so on. Errors: ErrorKind::usage if the parent is gone or cannot
// be seen, or if `explicit_pid` is not a running process; permission if the process belongs to
// another user and we are not root.
Result<OwnerProcess> find_lease_owner(std::optional<pid_t> explicit_pid);

}  // namespace berth
