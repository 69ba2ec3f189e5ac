// The output of `berth status` and `berth queue` as text.
#pragma once

#include <string>
#include <vector>

#include "base/terminal.h"
#include "devices/gpu.h"
#include "status/status.h"

namespace berth {

// brief: one line for each GPU and each ticket. full: every value, with the processes on each GPU
// and the reason why each ticket waits.
enum class StatusDetail { brief, full };

// The GPUs of a host and its queue. Whole lines, escaped and shortened for `terminal`.
std::string status_text(const Status& status, const Terminal& terminal, StatusDetail detail);

// The same for several hosts, one after the other.
std::string hosts_text(const std::vector<Status>& hosts, const Terminal& terminal,
                       StatusDetail detail);
std::string hosts_queue_text(const std::vector<Status>& hosts, const Terminal& terminal);

// The queue alone: each ticket and why it waits; or that the queue is empty.
std::string queue_text(const Status& status, const Terminal& terminal);

// A matrix of the connections between the cards.
std::string topology_text(const Topology& topology, const Terminal& terminal);

}  // namespace berth
