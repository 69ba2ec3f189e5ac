// The output of `berth status` and `berth queue` as text.
#pragma once

#include <string>
#include <vector>

#include "base/terminal.h"
#include "devices/gpu.h"
#include "status/status.h"

namespace berth {

// A table of the GPUs, with leases and processes below each, and the queue. Whole lines, escaped
// and shortened for `terminal`.
std::string status_text(const Status& status, const Terminal& terminal);

// The same for several hosts, one after the other.
std::string hosts_text(const std::vector<Status>& hosts, const Terminal& terminal);
std::string hosts_queue_text(const std::vector<Status>& hosts, const Terminal& terminal);

// The queue alone: each ticket and why it waits; or that the queue is empty.
std::string queue_text(const Status& status, const Terminal& terminal);

// A matrix of the connections between the cards.
std::string topology_text(const Topology& topology, const Terminal& terminal);

}  // namespace berth
