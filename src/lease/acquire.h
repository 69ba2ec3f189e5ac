// From a request to a lease: take a place in the queue, wait there without polling, claim.
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

// How whoever asks writes a request, so that messages name what he can change.
enum class ArgumentStyle : std::uint8_t { flags, keywords };

// "--max-util" for the command line, "util=" for Python.
std::string argument_name(std::string_view flag, ArgumentStyle style);

// A request, and who makes it.
struct AcquireRequest {
  Request gpu_request;
  std::string gpus;  // which GPUs, as the user wrote it (--gpu); empty: any
  std::string label;
  std::string command;
  pid_t holder_pid = 0;  // for whom; 0: this process
  HolderKind holder = HolderKind::job;
  std::optional<ProfileOptions> profile_options{};  // what is known of its type counts
  std::string
      replaced_ticket{};  // a ticket of several hosts; see cluster/remote/multi_host_ticket.h
  bool no_wait = false;
  std::optional<std::chrono::nanoseconds> timeout;
  ArgumentStyle argument_style = ArgumentStyle::flags;

  HarbourLocation harbour = harbour_location();

  // What the environment of who asks says, if anything.
  std::optional<std::string> visible_devices{};  // CUDA_VISIBLE_DEVICES: restricts the choice
  std::string parent_lease{};                    // BERTH_LEASE: it is asked inside this lease

  // The UUIDs of the GPUs that will do as they are now; asked before each decision, and again and
  // again while there are too few. Without it, all will do.
  std::function<std::vector<std::string>()> selector{};
};

// What a person who waits wants to know.
struct WaitStatus {
  std::size_t queue_position = 0;  // 0: not in the queue, since no GPU would do as it is now
  std::size_t queue_length = 0;
  std::string reason;  // one line, not yet made fit for a terminal
  std::optional<TimePoint> expected_start;
  bool operator==(const WaitStatus&) const = default;
};

struct AcquireCallbacks {
  std::function<void(const WaitStatus&)> on_wait;     // when it begins to wait, and at each change
  std::function<void(const std::string&)> on_notice;  // something the user should know
  int interrupt_fd = -1;  // a descriptor that becomes readable when the user wants to leave
  // Asked when it is: whether he really does. It takes what can be read there. Without it he does.
  std::function<bool()> confirm_interrupt{};
};

// The record of a client that asks, before it is granted anything.
Record make_record(const AcquireRequest& request, std::string id);

// Fills in which GPUs will do: what --gpu names, of what CUDA_VISIBLE_DEVICES leaves.
Result<void> restrict_to_allowed_gpus(Request& gpu_request, const AcquireRequest& request,
                                      const std::vector<Gpu>& gpus);

// Leaves of the GPUs that will do those that are `chosen`, too.
void intersect_allowed_gpus(Request& gpu_request, std::vector<std::string> uuids);

// The lease, or nothing if it was interrupted. Errors: usage (--gpu), no_driver, impossible,
// harbour, not_granted. However it ends, nothing stays in the queue.
//
// Inside a lease the GPUs come from that lease and nobody waits.
Result<std::optional<Lease>> acquire(Probe& probe, AcquireRequest request,
                                     const AcquireCallbacks& callbacks);

}  // namespace berth
