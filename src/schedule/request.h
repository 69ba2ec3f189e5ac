// What a job asks for. Plain data; validated by whoever makes it, before anything is touched.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/quantity.h"

namespace berth {

// Which of several GPUs that would do.
enum class Policy : std::uint8_t {
  spread,  // the emptiest
  pack,    // the fullest that fits: keeps whole GPUs free for exclusive jobs
  random,
};

struct Request {
  unsigned count = 1;
  std::optional<Bytes> memory;  // so much on each GPU, shared with others; nothing: exclusive
  Policy policy = Policy::spread;
  std::optional<std::chrono::nanoseconds> time;  // how long it will run, if it says so

  // Which GPUs will do.
  std::optional<std::vector<std::string>> uuids;  // only these
  std::optional<std::string> name;                // contained in the GPU's name, in any case
  std::optional<Bytes> min_memory;                // the GPU's size

  // What a GPU may be doing and still be handed out. Unknown is more than any limit.
  std::optional<unsigned> max_utilization_pct;
  std::optional<unsigned> max_memory_utilization_pct;
  unsigned max_processes = 0;  // of strangers
};

}  // namespace berth
