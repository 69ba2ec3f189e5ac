// How busy the processors of this host are, and how much of its memory is in use, from /proc.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/quantity.h"

namespace berth::top {

// Absent values are unknown.
struct HostUsage {
  std::optional<double> cpu_share{};  // of all processors together, 0 to 1
  std::optional<Bytes> memory_used{};
  std::optional<Bytes> memory_total{};
};

// Time that the processors have spent since the start of the host, in clock ticks.
struct CpuTimes {
  std::uint64_t busy = 0;
  std::uint64_t total = 0;
};

// `text` is that of /proc/stat.
std::optional<CpuTimes> parse_cpu_times(std::string_view text);

// Sets the memory of `usage` if `text`, that of /proc/meminfo, has both values. Memory that the
// kernel can reclaim, such as the page cache, is not in use.
void parse_host_memory(std::string_view text, HostUsage& usage);

// Used by one thread.
class HostUsageReader {
 public:
  // The processors' share is the average since the last call; it is unknown at the first.
  HostUsage read();

 private:
  std::optional<CpuTimes> last_;
};

}  // namespace berth::top
