// `berth status --json`: an interface with stable keys and units in their names.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "devices/gpu.h"
#include "status/status.h"

namespace berth {

enum class JsonForm { pretty, line };

// How much of it is shown, where that is not all.
struct JsonLimits {
  CommandVisibility command_visibility{};
  // At most so many of each queue; "queue_length" then says how many there are.
  std::optional<std::size_t> tickets{};
};

// A document and a newline, in ASCII: whatever was not, is escaped. Absent values are null.
std::string status_json(const Status& status, JsonForm form);
std::string hosts_json(const std::vector<Status>& hosts, JsonForm form,
                       const JsonLimits& limits = {});
std::string hosts_queue_json(const std::vector<Status>& hosts, JsonForm form,
                             const JsonLimits& limits = {});
std::string queue_json(const Status& status, JsonForm form);
std::string topology_json(const Topology& topology, JsonForm form);

}  // namespace berth
