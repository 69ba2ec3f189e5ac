// Turns a request for GPUs into a lease: the client takes a place in the queue, waits there without
// polling, and claims the GPUs that it is granted.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "devices/probe.h"
#include "harbour/harbour.h"
#include "lease/lease.h"
#include "profile/learning.h"
#include "schedule/request.h"

namespace berth {

// How the caller writes a request: messages name the argument that the caller can change.
enum class ArgumentStyle : std::uint8_t { flags, keywords };

// The argument `flag` ("--max-util") as the caller writes it: unchanged for the command line,
// "util=" for Python.
std::string argument_name(std::string_view flag, ArgumentStyle style);

// A request for GPUs, and the client that makes it.
struct AcquireRequest {
  Request gpu_request;
  std::string gpus;  // --gpu as the user wrote it; empty: any GPU
  std::string label;
  std::string command;
  pid_t holder_pid = 0;  // the process that the lease is for; 0: this process
  HolderKind holder = HolderKind::job;
  // Set: the learned needs of this job type change the request.
  std::optional<ProfileOptions> profile_options{};
  // The id of a multi-host ticket whose place in the queue the lease takes; see
  // cluster/remote/multi_host_ticket.h.
  std::string replaced_ticket{};
  bool no_wait = false;
  std::optional<std::chrono::nanoseconds> timeout;
  ArgumentStyle argument_style = ArgumentStyle::flags;

  HarbourLocation harbour = harbour_location();

  // From the environment of the caller.
  std::optional<std::string> visible_devices{};  // CUDA_VISIBLE_DEVICES: restricts the choice
  std::string parent_lease{};  // BERTH_LEASE: the request is made inside this lease

  // Returns the UUIDs of the GPUs that the caller accepts in their current state. Called before
  // each decision, and every few seconds while it returns too few. Empty: all GPUs are accepted.
  std::function<std::vector<std::string>()> selector{};
};

// What a waiting client shows to its user.
struct WaitStatus {
  std::size_t queue_position = 0;  // 0: not in the queue, since the selector accepts too few GPUs
  std::size_t queue_length = 0;
  std::string reason;  // one line; may have control characters, so printable() before it is shown
  std::optional<TimePoint> expected_start;
  bool operator==(const WaitStatus&) const = default;
};

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
};

// The record of a client that is not granted anything yet.
Record make_record(const AcquireRequest& request, std::string id);

// Sets gpu_request.uuids to the GPUs that --gpu names and CUDA_VISIBLE_DEVICES allows. Leaves MIG
// instances out if the request limits the load, since the driver does not report their load.
// ErrorKind::usage: --gpu is malformed. ErrorKind::impossible: no GPU is left.
Result<void> restrict_to_allowed_gpus(Request& gpu_request, const AcquireRequest& request,
                                      const std::vector<Gpu>& gpus);

// Removes from gpu_request.uuids the GPUs that are not among `uuids`.
void intersect_allowed_gpus(Request& gpu_request, std::vector<std::string> uuids);

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
