// The keeper: the process that holds the lease of a shell, and ends with that shell.
#pragma once

#include "lease/lease.h"
#include "run/lease_owner.h"

namespace berth {

// A keeper that waits to be told that the lease was delivered.
class Keeper {
 public:
  // Starts it: a process of its own session without a terminal, which holds nothing but the bell.
  // The lease ends when the owner does, or when it is given back by `berth release`.
  static Result<Keeper> start(Lease& lease, const OwnerProcess& owner);

  // The shell has what it needs. If this is never called (berth was killed, nobody reads its
  // output), the keeper gives the lease back at once: nothing is granted and not delivered.
  void confirm_delivery();

 private:
  explicit Keeper(UniqueFd pipe) : pipe_(std::move(pipe)) {}
  UniqueFd pipe_;
};

// For a lease of a harbour of several hosts, which somebody must speak for there: a process that
// waits until this one is gone, killed even, and then keeps the lease as long as what the job has
// left behind does. Without it, others would count it as gone after its time to live. Where no
// process can be started, that is so.
void start_orphan_heartbeat(Lease& lease);

}  // namespace berth
