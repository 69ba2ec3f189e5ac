// `berth status --json`: an interface with stable keys and units in their names.
#pragma once

#include <string>
#include <vector>

#include "broker/status.h"
#include "devices/gpu.h"

namespace berth {

enum class JsonForm { pretty, line };

// A document and a newline, in ASCII: whatever was not, is escaped. Absent values are null.
std::string status_json(const Status& status, JsonForm form);
std::string hosts_json(const std::vector<Status>& hosts, JsonForm form);
std::string hosts_queue_json(const std::vector<Status>& hosts, JsonForm form);
std::string queue_json(const Status& status, JsonForm form);
std::string topology_json(const Topology& topology, JsonForm form);

}  // namespace berth
