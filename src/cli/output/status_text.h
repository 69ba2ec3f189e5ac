// `berth status` for people: a table of the GPUs, with the processes below each.
#pragma once

#include <string>
#include <vector>

#include "base/terminal.h"
#include "devices/gpu.h"
#include "status/status.h"

namespace berth {

// Whole lines, fit for `terminal`.
std::string status_text(const Status& status, const Terminal& terminal);

// Of several hosts, one after the other.
std::string hosts_text(const std::vector<Status>& hosts, const Terminal& terminal);
std::string hosts_queue_text(const std::vector<Status>& hosts, const Terminal& terminal);

// The queue alone: who waits, and why; says so if nobody does.
std::string queue_text(const Status& status, const Terminal& terminal);

// How the cards are connected, as a matrix.
std::string topology_text(const Topology& topology, const Terminal& terminal);

}  // namespace berth
