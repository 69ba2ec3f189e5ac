// From a request to a lease: take a place in the queue, wait there without polling, claim.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "broker/lease.h"
#include "devices/probe.h"
#include "harbour/harbour.h"
#include "schedule/request.h"

namespace berth {

// A request, and who makes it.
struct Ask {
  Request request;
  std::string gpus;  // which GPUs, as the user wrote it (--gpu); empty: any
  std::string label;
  std::string command;
  pid_t pid = 0;  // for whom; 0: this process
  HolderKind holder = HolderKind::job;
  bool no_wait = false;
  std::optional<std::chrono::nanoseconds> timeout;
};

// What a person who waits wants to know.
struct WaitNews {
  std::size_t position = 0;
  std::size_t length = 0;
  std::string reason;  // one line, not yet made fit for a terminal
  std::optional<TimePoint> starts;
  bool operator==(const WaitNews&) const = default;
};

struct Hooks {
  std::function<void(const WaitNews&)> on_wait;       // when it begins to wait, and at each change
  std::function<void(const std::string&)> on_notice;  // something the user should know
  int interrupt = -1;  // a descriptor that becomes readable when the user wants to leave
};

// The record of a client that asks, before it is granted anything.
Record make_record(const Ask& ask, std::string id);

// Fills in which GPUs will do: what --gpu names, of what CUDA_VISIBLE_DEVICES leaves. That of a
// lease that has ended does not count.
Result<void> restrict_choice(Request& request, const Ask& ask, const std::vector<Gpu>& gpus,
                             bool obey_environment = true);

// The lease, or nothing if it was interrupted. Errors: usage (--gpu), no_driver, impossible,
// harbour, not_granted. However it ends, nothing stays in the queue.
//
// Inside a lease (BERTH_LEASE in the environment) the GPUs come from that lease and nobody waits.
// CUDA_VISIBLE_DEVICES restricts what may be chosen.
Result<std::optional<Lease>> acquire(Probe& probe, Ask ask, const Hooks& hooks);

}  // namespace berth
