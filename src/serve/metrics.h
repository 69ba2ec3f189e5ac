// GPUs, leases, queue and what has happened, in Prometheus' text format. Pure: no clock, no file.
//
// docs/serve.md lists the metrics. What is not known has no sample: a 0 would be a lie that rules
// and averages believe. Labels are bounded by what a host has: GPUs, users and states, never
// commands, labels of jobs or ids.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "serve/lease_counters.h"
#include "status/status.h"

namespace berth::serve {

struct MetricsInput {
  const std::vector<Status>& hosts;  // of the last look, as far as it succeeded
  const LeaseCounters& counters;
  bool poll_succeeded = false;  // of the last look; else nothing is told of GPUs, leases, queue
  std::optional<TimePoint> last_success;  // when one last succeeded
  TimePoint now;
  std::string version;
};

// To be sent as "text/plain; version=0.0.4; charset=utf-8".
std::string format_metrics(const MetricsInput& input);

// A label's value, as the format wants it: one line of UTF-8, escaped.
std::string escape_label_value(std::string_view text);

}  // namespace berth::serve
