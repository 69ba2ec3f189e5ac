// The request of a job: which GPUs, how many, how much memory. Plain data; the code that creates a
// request validates it first.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/quantity.h"

namespace berth {

// Which of several suitable GPUs to prefer.
enum class Policy : std::uint8_t {
  spread,  // the GPU with the lowest memory load
  pack,    // the GPU with the highest, to keep whole GPUs free for exclusive jobs
  random,
};

struct Request {
  unsigned count = 1;
  std::optional<Bytes>
      memory;  // to reserve on each GPU, shared with other jobs; nullopt: exclusive
  Policy policy = Policy::spread;
  std::optional<std::chrono::nanoseconds> time;  // the announced run time

  // Conditions on the GPUs.
  std::optional<std::vector<std::string>> uuids;  // only these GPUs
  std::optional<std::string> name;                // a part of the GPU's name, ignoring case
  std::optional<Bytes> min_memory;                // the GPU's total memory

  // Limits on the present use of the GPUs. An unknown value is above any limit.
  std::optional<unsigned> max_utilization_pct;
  std::optional<unsigned> max_memory_utilization_pct;
  unsigned max_processes = 0;  // compute processes without a lease

  bool operator==(const Request&) const = default;
};

// Whether `changed` differs from `original` at most by less memory and another run time. A ticket
// whose request changes in this way keeps its place in the queue.
inline bool asks_for_no_more(const Request& changed, const Request& original) {
  Request expected = original;
  expected.memory = changed.memory;
  expected.time = changed.time;
  const bool less_memory =
      !original.memory || (changed.memory && *changed.memory <= *original.memory);
  return less_memory && changed == expected;
}

}  // namespace berth
