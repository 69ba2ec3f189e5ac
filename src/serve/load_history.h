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

namespace berth {

constexpr std::chrono::seconds kSampleInterval(10);
constexpr std::size_t kMostSamples = 360;

// For one thread.
class Samples {
 public:
  // What is seen at `now`. True if a new point was made of it: at most one in ten seconds. Points
  // that were missed (nobody could look) are there as unknown.
  bool take(const std::vector<Status>& hosts, TimePoint now);
  // A point at which nothing could be seen, if one is due.
  bool take_nothing(TimePoint now) { return take({}, now); }

  // Documents on one line, as docs/serve.md has them. GPUs that were not seen for an hour are not
  // in it.
  std::string all() const;
  std::string newest() const;

 private:
  struct Point {
    std::optional<unsigned> utilization_pct;
    std::optional<std::uint64_t> memory_used_mib;
  };
  struct Track {
    std::deque<Point> points;  // as many as everybody has: `count_`
  };
  void add_point();

  std::map<std::pair<std::string, std::string>, Track> tracks_;  // by host and UUID
  std::optional<std::int64_t> slot_;                             // of the newest point
  std::size_t count_ = 0;
};

}  // namespace berth
