// `berth cancel` for what is on other hosts: tickets leave all queues by Redis, and running jobs
// are ended by `berth cancel` on their host, by ssh as the same user.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "run/cancel.h"

namespace berth {

// A ticket in the queues of other hosts.
struct RemoteTicket {
  std::vector<std::string> hosts{};
  // The argument of the user that names it, for the host that has granted it meanwhile; empty: then
  // it stays. Not its id: a forged ticket can have that of another job.
  std::string argument{};
};

struct RemoteCancel {
  std::map<std::string, RemoteTicket> tickets{};  // by id
  // Hosts, and the arguments of `berth cancel` there. Those are the ones of the user: that host
  // decides by its own files what they name, since any client of Redis can write a record.
  std::map<std::string, std::vector<std::string>> arguments{};
  // Why running jobs on some hosts cannot be ended from here.
  std::vector<Error> refusals{};
  // Detached jobs of this host that run on another one.
  std::vector<std::string> detached_jobs{};
  // Leases on this host, and the ids by which the user knows their jobs.
  std::map<std::string, std::string> names{};

  bool is_empty() const { return tickets.empty() && arguments.empty() && refusals.empty(); }
};

// Finds what the selection means on other hosts, and leaves in it only what is on this host. Checks
// everything and ends nothing. Errors are those of cancel(), and ErrorKind::usage if the
// configuration does not permit a connection to the host of one of the ids.
Result<RemoteCancel> find_remote_targets(CancelSelection& selection);

// Both print what became of each. The tickets come first: they would be granted the GPUs of the
// jobs that end. A ticket that was granted meanwhile becomes a job to end.
Result<void> cancel_remote_tickets(RemoteCancel& targets);
// Returns the exit code for the user.
int cancel_remote_jobs(const RemoteCancel& targets, std::chrono::nanoseconds grace);

}  // namespace berth
