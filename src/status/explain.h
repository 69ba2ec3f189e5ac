// Why a ticket waits, or can never be granted, in words: who is in the way, and what would fit.
#pragma once

#include <string>

#include "schedule/plan.h"
#include "status/host_view.h"

namespace berth {

// "GPU 0 leased by bob (train.py); GPU 2: python (pid 4711, user bob) uses 9.1 GiB without a
// lease". One line, not yet made fit for a terminal.
std::string explain_wait(const Wait& wait, const Request& request, const HostView& view);

// ErrorKind::impossible: what was asked for, and what this host has.
Error explain_impossible(const Impossible& impossible, const Request& request,
                         const HostView& view);

// "drained by root: its fan is broken".
std::string describe_drain(const Drain& drain);

// "python (pid 4711, user bob) uses 9.1 GiB without a lease".
std::string describe_stranger(const GpuProcess& process);

// Every stranger on the GPU, and memory that nobody accounts for; empty if there is neither.
std::string describe_strangers(const GpuWithLeases& gpu_view);

// "bob (python train.py)", or with its label instead of the command.
std::string describe_holder(const Record& record);

}  // namespace berth
