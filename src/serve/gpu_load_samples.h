// Utilization and memory of every GPU over the last hour, with a sample every ten seconds.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "status/status.h"

namespace berth::serve {

constexpr std::chrono::seconds kSampleInterval(10);
constexpr std::size_t kMaxSamples = 360;

// Used by one thread.
class GpuLoadSamples {
 public:
  // Adds the state of the GPUs at `now`, if a sample is due: at most one in ten seconds. Returns
  // whether it did. Samples that were missed since the last one are added as unknown. A large jump
  // of the clock clears the history.
  bool add_sample(const std::vector<Status>& hosts, TimePoint now);
  // The same for a poll that failed: all GPUs are unknown.
  bool add_unknown_sample(TimePoint now) { return add_sample({}, now); }

  // JSON documents on one line (format: docs/serve.md), of all samples and of the newest one. GPUs
  // without a known value in the last hour are left out.
  std::string all_json() const;
  std::string newest_json() const;

  // All samples as text for a file, and back. restore() ignores a text that is damaged, or whose
  // newest sample is older than an hour or later than `now`.
  std::string serialize() const;
  void restore(std::string_view text, TimePoint now);

 private:
  struct SamplePoint {
    std::optional<unsigned> utilization_pct;
    std::optional<std::uint64_t> memory_used_mib;
  };
  void add_point();
  Json all_hosts_json() const;
  void restore_gpu(const std::string& host, const Json& gpu);

  // By host and UUID; every GPU has `count_` points.
  std::map<std::pair<std::string, std::string>, std::deque<SamplePoint>> gpus_;
  std::optional<std::int64_t> slot_;  // of the newest point, in intervals since 1970
  std::size_t count_ = 0;
};

}  // namespace berth::serve
