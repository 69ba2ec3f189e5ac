// Utilization and memory of every GPU over the last hour, a point every ten seconds, in memory.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "status/status.h"

namespace berth::serve {

constexpr std::chrono::seconds kSampleInterval(10);
constexpr std::size_t kMaxSamples = 360;

// For one thread.
class LoadHistory {
 public:
  // What is seen at `now`. True if a new point was made of it: at most one in ten seconds. Points
  // that were missed (nobody could look) are there as unknown.
  bool add_sample(const std::vector<Status>& hosts, TimePoint now);
  // A point at which nothing could be seen, if one is due.
  bool add_unknown_sample(TimePoint now) { return add_sample({}, now); }

  // Documents on one line, as docs/serve.md has them. GPUs that were not seen for an hour are not
  // in it.
  std::string all_json() const;
  std::string newest_json() const;

 private:
  struct SamplePoint {
    std::optional<unsigned> utilization_pct;
    std::optional<std::uint64_t> memory_used_mib;
  };
  struct GpuSamples {
    std::deque<SamplePoint> points;  // as many as everybody has: `count_`
  };
  void add_point();

  std::map<std::pair<std::string, std::string>, GpuSamples> gpus_;  // by host and UUID
  std::optional<std::int64_t> slot_;                                // of the newest point
  std::size_t count_ = 0;
};

}  // namespace berth::serve
