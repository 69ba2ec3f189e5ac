// Parses /proc/stat and /proc/meminfo; see host_usage.h.
#include "top/host_usage.h"

#include <algorithm>
#include <cstddef>

#include "base/read_file.h"
#include "base/text.h"

namespace berth::top {

std::optional<CpuTimes> parse_cpu_times(std::string_view text) {
  // The first line: "cpu user nice system idle iowait irq softirq steal guest guest_nice". The
  // times of guests are part of user and nice.
  constexpr std::size_t kColumns = 8;
  constexpr std::size_t kIdle = 3;
  constexpr std::size_t kIoWait = 4;
  std::string_view line = text.substr(0, text.find('\n'));
  if (take_word(line) != "cpu") return std::nullopt;
  CpuTimes times;
  for (std::size_t column = 0; column < kColumns; ++column) {
    const std::string_view word = take_word(line);
    const auto ticks = parse_integer<std::uint64_t>(word);
    if (!ticks && column <= kIdle) return std::nullopt;
    times.total += ticks.value_or(0);
    if (column != kIdle && column != kIoWait) times.busy += ticks.value_or(0);
  }
  return times;
}

void parse_host_memory(std::string_view text, HostUsage& usage) {
  std::optional<std::uint64_t> total;
  std::optional<std::uint64_t> available;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::string_view key = take_word(line);
    if (key == "MemTotal:") total = parse_integer<std::uint64_t>(take_word(line));
    if (key == "MemAvailable:") available = parse_integer<std::uint64_t>(take_word(line));
  }
  if (!total || !available || *total == 0) return;
  usage.memory_total = Bytes{*total << 10};
  usage.memory_used = Bytes{(*total - std::min(*total, *available)) << 10};
}

HostUsage HostUsageReader::read() {
  HostUsage usage;
  if (const auto memory = read_proc_file("/proc/meminfo")) parse_host_memory(*memory, usage);
  const auto text = read_proc_file("/proc/stat");
  const auto times = text ? parse_cpu_times(*text) : std::nullopt;
  // The kernel may count a little idle time back: then the share is unknown once.
  if (times && last_ && times->total > last_->total && times->busy >= last_->busy) {
    const auto busy = static_cast<double>(times->busy - last_->busy);
    usage.cpu_share = std::min(busy / static_cast<double>(times->total - last_->total), 1.0);
  }
  last_ = times;
  return usage;
}

}  // namespace berth::top
