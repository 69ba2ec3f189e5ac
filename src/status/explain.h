// Messages that explain why a ticket waits or can never be granted.
#pragma once

#include <string>

#include "schedule/plan.h"
#include "status/host_view.h"

namespace berth {

// "needs 4 GPUs, 1 available; GPUs 0,1 leased by bob (train.py); GPU 2: python (pid 4711, user bob)
// uses 9.1 GiB without a lease". One line; may have control characters, so printable() before it is
// shown.
std::string explain_wait(const Wait& wait, const Request& request, const HostView& view);

// Why the start of a ticket cannot be estimated: "chen (python eval.py) is 12m late, and the end of
// tom (notebook) is unknown"; "it is behind ines (pretraining)", another ticket without a start. `wait`: StartEstimate::last_wait. Empty if explain_wait() says it.
std::string explain_unknown_start(const Wait& wait, const HostView& view, TimePoint now);

// An error of ErrorKind::impossible that says what was requested and what this host has: "no GPU
// here has 90 GiB of memory (largest: 24 GiB)", "the request needs 9 GPUs, but this host has only
// 4".
Error explain_impossible(const Impossible& impossible, const Request& request,
                         const HostView& view);

// "drained by root: its fan is broken".
std::string describe_drain(const Drain& drain);

// "python (pid 4711, user bob) uses 9.1 GiB without a lease".
std::string describe_stranger(const GpuProcess& process);

// All strangers on the GPU, or memory that no listed process accounts for; empty if the GPU has
// neither.
std::string describe_strangers(const GpuWithLeases& gpu_view);

// "bob (python train.py)", with the label instead of the command if there is one.
std::string describe_holder(const Record& record);

}  // namespace berth
