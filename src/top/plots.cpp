// Draws plots with characters of eight heights; see plots.h.
#include "top/plots.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "archive/day_chart.h"
#include "status/status_format.h"

namespace berth::top {
namespace {

constexpr std::array<std::string_view, 9> kBlocks{"▁", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::string_view kAsciiLevels = "__.:-=+*#";

std::string_view level(std::size_t eighths, Charset charset) {
  return charset == Charset::utf8 ? kBlocks[eighths] : kAsciiLevels.substr(eighths, 1);
}

std::size_t eighths_of(double share, std::size_t cells) {
  return round_positive(std::clamp(share, 0.0, 1.0) * static_cast<double>(8 * cells));
}

}  // namespace

Style load_style(double share) {
  if (share < 0.05) return Style::dim;
  if (share < 0.5) return Style::notice;
  return share < 0.85 ? Style::good : Style::warning;
}

Style memory_style(double share) {
  return share < 0.9 ? Style::notice : Style::warning;
}

// Most GPUs reduce their clock rates somewhere above 83 °C and stop between 90 °C and 100 °C.
Style temperature_style(const std::optional<unsigned>& celsius) {
  if (!celsius) return Style::dim;
  if (*celsius >= 90) return Style::bad;
  return *celsius >= 80 ? Style::warning : Style::plain;
}

void add_sparkline(StyledLine& line, const Values& values, std::size_t width, ValueStyle style,
                   Charset charset) {
  line.append(std::move(tall_plot(values, width, 1, style, charset).front()));
}

std::vector<StyledLine> tall_plot(const Values& values, std::size_t width, std::size_t height,
                                  ValueStyle style, Charset charset) {
  const std::size_t count = std::min(values.size(), width);
  std::vector<StyledLine> lines;
  for (std::size_t row = height; row-- > 0;) {
    StyledLine line = make_line(Style::plain, std::string(width - count, ' '));
    for (std::size_t i = values.size() - count; i < values.size(); ++i) {
      const std::size_t high = values[i] ? eighths_of(*values[i], height) : 0;
      const std::size_t eighths = std::min<std::size_t>(high > 8 * row ? high - 8 * row : 0, 8);
      const bool is_baseline = values[i] && row == 0;  // a known 0 is a line at the bottom
      if (eighths > 0 || is_baseline) {
        line.extend(style(*values[i]), level(eighths, charset));
      } else {
        line.extend(Style::plain, " ");
      }
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

Bytes reserved_unused(const Status& host, const GpuStatus& gpu) {
  const std::uint64_t total = gpu.view.gpu.memory_total.value_or(Bytes{}).count;
  const std::uint64_t used = gpu.view.gpu.memory_used.value_or(Bytes{}).count;
  const std::uint64_t free = total > used ? total - used : 0;
  std::uint64_t sum = 0;
  for (const Record& lease : host.leases) {
    if (!gpu.view.has_lease(lease.id)) continue;
    if (!lease.request.memory) return {free};
    std::uint64_t observed = 0;
    for (const AttributedProcess& one : gpu.view.processes) {
      if (one.lease != lease.id) continue;
      observed = saturating_add(observed, one.process.memory.value_or(Bytes{}).count);
    }
    const std::uint64_t reserved = lease.request.memory->count;
    sum = saturating_add(sum, reserved > observed ? reserved - observed : 0);
  }
  return {std::min(sum, free)};
}

void add_memory_bar(StyledLine& line, const Status& host, const GpuStatus& gpu, std::size_t width,
                    Charset charset) {
  const Gpu& gpu_info = gpu.view.gpu;
  if (!gpu_info.memory_total || !gpu_info.memory_used || gpu_info.memory_total->count == 0) {
    line.add(Style::plain, std::string(width, ' '));
    return;
  }
  const auto total = static_cast<double>(gpu_info.memory_total->count);
  const auto cells = [&](std::uint64_t bytes) {
    const double share = std::min(static_cast<double>(bytes) / total, 1.0);
    return std::min<std::size_t>(round_positive(share * static_cast<double>(width)), width);
  };
  const std::uint64_t used = gpu_info.memory_used->count;
  const std::uint64_t reserved = reserved_unused(host, gpu).count;
  // Memory that is used (64 MiB or more) or reserved is always visible: at least one cell.
  const std::size_t filled = std::max<std::size_t>(cells(used), used >= mib(64).count ? 1 : 0);
  const std::size_t occupied =
      std::max(filled, std::max(cells(saturating_add(used, reserved)),
                                reserved > 0 ? std::min(filled + 1, width) : filled));
  const bool utf8 = charset == Charset::utf8;
  const Style style = style_of(gpu.state_reason.state);
  line.add(style, repeat_text(utf8 ? "█" : "#", filled));
  line.add(style, repeat_text(utf8 ? "░" : "=", occupied - filled));
  line.add(Style::dim, repeat_text(utf8 ? "·" : ".", width - occupied));
}

}  // namespace berth::top
