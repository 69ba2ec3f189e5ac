// The keeper: the process that holds the lease of a shell, and ends with that shell.
#pragma once

#include "lease/lease.h"
#include "run/lease_owner.h"

namespace berth {

// The parent's side of a keeper that was started and waits for confirm_delivery().
class Keeper {
 public:
  // Forks the keeper: a process in its own session, without a terminal, that holds nothing but the
  // bell. The lease ends when the last of its owners ends, or by `berth release`.
  static Result<Keeper> start(Lease& lease, LeaseOwners& owners);

  // The shell has received the lease, or receives it now. The keeper waits until this object is
  // gone, or this process has ended. If this was not called by then (berth was killed, or the
  // reader of its output is gone), the keeper releases the lease at once: a lease that was not
  // delivered does not stay granted.
  void confirm_delivery();
  // The shell has not received it after all.
  void revoke_delivery();

 private:
  explicit Keeper(UniqueFd pipe) : pipe_(std::move(pipe)) {}
  UniqueFd pipe_;
};

// For a lease in a harbour of several hosts, whose heartbeat must go on if this process is killed.
// Starts a process that waits until this one is gone, and then keeps the lease's heartbeat going as
// long as processes that the job left behind hold the lease. Without it, other hosts would count
// the lease as gone after its time to live; that is also so if the process cannot be started.
void start_orphan_heartbeat(Lease& lease);

}  // namespace berth
