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

// The GPUs of a host and its queue, at Status::time. Whole lines, escaped and shortened for
// `terminal`. What belongs to the user `viewer` is marked.
std::string status_text(const Status& status, const Terminal& terminal, uid_t viewer,
                        StatusDetail detail);

// The same for several hosts, one after the other.
std::string hosts_text(const std::vector<Status>& hosts, const Terminal& terminal, uid_t viewer,
                       StatusDetail detail);
std::string hosts_queue_text(const std::vector<Status>& hosts, const Terminal& terminal,
                             uid_t viewer);

// The queue alone: each ticket and why it waits; or that the queue is empty.
std::string queue_text(const Status& status, const Terminal& terminal, uid_t viewer);

// A matrix of the connections between the cards.
std::string topology_text(const Topology& topology, const Terminal& terminal);

}  // namespace berth
