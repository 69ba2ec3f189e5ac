// Metrics of GPUs, leases and queue in the text format of Prometheus. Pure: no clock, no file.
//
// docs/serve.md lists the metrics. An unknown value has no sample, because alerts and averages
// would take a 0 for a measurement. Label values are limited to GPUs, users and states; commands,
// job labels and ids would make the number of time series grow without limit.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "serve/lease_counters.h"
#include "status/status.h"

namespace berth::serve {

struct MetricsInput {
  const std::vector<Status>& hosts;  // of the last poll, if it succeeded
  const LeaseCounters& counters;
  bool poll_succeeded = false;            // false: no samples of GPUs, leases and queue
  std::optional<TimePoint> last_success;  // time of the last poll that succeeded
  TimePoint now;
  std::string version;
};

// Content type: "text/plain; version=0.0.4; charset=utf-8".
std::string format_metrics(const MetricsInput& input);

// Escapes the value of a label: the result is one line of valid UTF-8.
std::string escape_label_value(std::string_view text);

}  // namespace berth::serve
