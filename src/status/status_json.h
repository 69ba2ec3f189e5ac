// The JSON of `berth status`, `berth queue` and `berth serve`: an interface with stable keys, and
// units in their names.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "devices/gpu.h"
#include "status/status.h"

namespace berth {

enum class JsonForm { pretty, line };

// Leaves out parts of the document.
struct JsonLimits {
  CommandVisibility command_visibility{};
  // The maximum number of tickets of each queue; "queue_length" then has the total.
  std::optional<std::size_t> tickets{};
};

// Each returns a document and a newline. All characters that are not ASCII are escaped. Absent
// values are null.
std::string status_json(const Status& status, JsonForm form);
std::string hosts_json(const std::vector<Status>& hosts, JsonForm form,
                       const JsonLimits& limits = {});
std::string hosts_queue_json(const std::vector<Status>& hosts, JsonForm form,
                             const JsonLimits& limits = {});
std::string queue_json(const Status& status, JsonForm form);
std::string topology_json(const Topology& topology, JsonForm form);

}  // namespace berth
