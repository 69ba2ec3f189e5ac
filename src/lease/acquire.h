// Turns a request for GPUs into a lease: the client takes a place in the queue, waits there without
// polling, and claims the GPUs that it is granted.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "devices/probe.h"
#include "lease/acquire_request.h"
#include "lease/lease.h"
#include "schedule/plan.h"
#include "status/lease_end.h"

namespace berth {

// What a waiting client shows to its user.
struct WaitStatus {
  std::size_t queue_position = 0;  // 0: not in the queue, since the selector accepts too few GPUs
  std::size_t queue_length = 0;
  std::string reason;  // one line; may have control characters, so printable() before it is shown
  std::optional<TimePoint> expected_start;
  TimePoint since{};                    // when the client asked
  std::optional<NextFree> next_free{};  // of the GPUs that match, if no start is expected
  bool operator==(const WaitStatus&) const = default;
};

// WaitStatus::reason while nothing is granted because Redis may have lost leases.
inline constexpr const char* kRecoveryReason =
    "Redis was started or unreachable a moment ago; running jobs restore their leases first";

// Callbacks of acquire(). It calls them on its own thread, without the harbour's lock. A callback
// may fork: acquire() in the child then returns as if it was interrupted, and leaves the ticket and
// the lock to the parent.
struct AcquireCallbacks {
  std::function<void(const WaitStatus&)> on_wait;     // the wait begins, or its status has changed
  std::function<void(const std::string&)> on_notice;  // text that the user should read
  int interrupt_fd = -1;  // becomes readable when the user wants to stop waiting
  // Called when interrupt_fd is readable. Reads what is there, and returns whether to stop waiting.
  // Empty: a readable interrupt_fd always ends the wait.
  std::function<bool()> confirm_interrupt{};
  // Nothing has changed, but time has passed: for displays. Called after 30 to 60 s, and every few
  // seconds while processes without a lease or the selector block the request.
  std::function<void()> on_time_passed{};
  // Nothing is left to do until something changes. Called before each sleep: once for each change
  // that another client makes, and as often as on_time_passed.
  std::function<void()> on_sleep{};
};

// Waits until the request is granted. Returns the lease, or nothing if the wait was interrupted.
// However it returns, this client has no ticket in the queue any more.
//
// Inside a lease (BERTH_LEASE) the GPUs come from that lease, without waiting.
//
// Errors: usage (--gpu is malformed), no_driver, impossible, io, unavailable, not_granted,
// permission (BERTH_LEASE names the lease of another user).
Result<std::optional<Lease>> acquire(Probe& probe, AcquireRequest request,
                                     const AcquireCallbacks& callbacks);

}  // namespace berth
