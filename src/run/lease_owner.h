// Finds the processes that a lease of `berth acquire` belongs to: the shell that called berth, the
// process that --for names, or the process that gets what berth prints.
//
// A shell calls berth through forks of itself: $( ), ( ), pipes, < <( ). Such a fork ends at once,
// and a lease bound to it would end with it. So the lease is bound to the process that the forks
// came from.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "base/process.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace berth {

struct OwnerProcess {
  pid_t pid = 0;
  UniqueFd handle;   // a pidfd; readable for poll() when the process has ended
  std::string name;  // chosen by the process: pass it through printable() before it is shown
  pid_t group = 0;   // its process group
  pid_t session = 0;
};

// Without `explicit_pid`: the parent of this process; or, if that is a mere fork (no exec since) of
// its own parent, that parent, and so on. Errors: ErrorKind::usage if the parent is gone or cannot
// be seen, or if `explicit_pid` is not a running process; permission if the process belongs to
// another user and we are not root.
Result<OwnerProcess> find_lease_owner(std::optional<pid_t> explicit_pid);

// The process `pid`, which the argument `argument` of the command line names. Errors as above.
Result<OwnerProcess> open_named_process(pid_t pid, std::string_view argument);

// The processes that a lease belongs to, one after the other.
struct LeaseOwners {
  OwnerProcess first;
  // Processes that the number of the GPU may have been passed on to, the nearest first.
  std::vector<OwnerProcess> successors{};
  // If set, processes that an owner leaves behind can own the lease next. They were started no
  // earlier than this: in clock ticks since the host started, as in ProcessStat.
  std::optional<std::uint64_t> orphans_since{};
};

// The owners of a lease whose GPU is printed for a script, which may call berth through programs
// that end at once (timeout, sh -c, xargs, a wrapper script). `first` is the nearest process above
// this one that has another standard output: it reads what berth prints ($( ), popen), or has sent
// it to another program. If the output goes into a file, `first` is what find_lease_owner() finds.
// The successors may learn the GPU from it: the shell that it is a fork of, its parent unless
// `first` reads the output itself, and each process that reads the standard output of another
// owner. ErrorKind::usage, with `remedy` at its end, if no process of this session is seen to read
// the output.
Result<LeaseOwners> find_output_owners(std::string_view remedy);

// Whether the parent of a process that does not lead its session has ended: a parent in another
// session has adopted the process.
bool has_lost_parent(const ProcessStat& process);

// The next owner, after `ended` has ended; nullopt: the lease ends. In this order: a process that
// has lost its parent and is in the group of `ended` (in its session, if `ended` led that); and, if
// the lease's GPUs were not `used` yet, the next of the successors, or a process that `ended` left
// behind in another group of its session, as shells with job control do. Not a process in `busy`:
// one that waits for GPUs or has a lease of its own.
std::optional<OwnerProcess> take_next_owner(LeaseOwners& owners, const OwnerProcess& ended,
                                            bool used, const std::set<pid_t>& busy);

}  // namespace berth
