// Renders the head of the screen; see head.h.
#include "top/head.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/time_text.h"
#include "status/status_format.h"
#include "top/columns.h"
#include "top/plots.h"

namespace berth::top {
namespace {

// `left`, cut off if necessary, and `right` at the end of the line.
StyledLine justified_line(StyledLine left, StyledLine right, const Canvas& canvas) {
  const std::size_t room = canvas.width - std::min(canvas.width, right.width());
  left = truncate_line(std::move(left), room, canvas.charset);
  left.add(Style::plain, std::string(room - left.width(), ' '));
  return std::move(left.append(std::move(right)));
}

std::string gpus_text(const TopSnapshot& snapshot) {
  Status all;
  for (const Status& host : snapshot.hosts) {
    all.gpus.insert(all.gpus.end(), host.gpus.begin(), host.gpus.end());
  }
  return format_gpu_counts(all);
}

StyledLine counts_line(const Model& model, const Canvas& canvas, TimePoint now) {
  const TopSnapshot& snapshot = model.snapshot();
  StyledLine line;
  if (snapshot.hosts.size() == 1) {
    const Status& host = snapshot.hosts.front();
    line.add(Style::bold, fmt::format(" {}", canvas.escape(host.host)));
    line.add(Style::plain, fmt::format("  {}", format_gpu_counts(host)));
  } else {
    line.add(Style::bold, " berth top");
    if (snapshot.last_success)
      line.add(Style::dim, fmt::format("  {} hosts", snapshot.hosts.size()));
  }
  if (snapshot.hosts.size() > 1) line.add(Style::plain, fmt::format("  {}", gpus_text(snapshot)));
  StyledLine end = make_line(Style::plain, " ");
  if (model.paused()) end.add(Style::warning, "paused  ");
  end.add(Style::dim, format_local_time(now, "%H:%M:%S") + " ");
  if (snapshot.hosts.size() == 1) {
    const std::string driver =
        fmt::format("  {}", canvas.escape(format_driver(snapshot.hosts.front())));
    const std::size_t width = line.width() + display_width(driver) + end.width();
    if (width <= canvas.width) line.add(Style::dim, driver);
  }
  return justified_line(std::move(line), std::move(end), canvas);
}

// " on gpu-a", if there are several hosts.
std::string on_host(const Status& host, const TopSnapshot& snapshot) {
  return snapshot.hosts.size() > 1 ? fmt::format(" on {}", host.host) : "";
}

void add_free_gpus(StyledLine& line, const TopSnapshot& snapshot, const Canvas& canvas) {
  std::string hosts;
  for (const Status& host : snapshot.hosts) {
    std::vector<GpuIndex> free;
    for (const GpuStatus& gpu : host.gpus) {
      if (gpu.state_reason.state == GpuState::free) free.push_back(gpu.view.gpu.index);
    }
    if (free.empty()) continue;
    hosts += fmt::format("{}{}{}", hosts.empty() ? "" : "; ", format_gpu_list(free),
                         on_host(host, snapshot));
  }
  if (!hosts.empty()) line.add(Style::good, fmt::format(" free: {}", canvas.escape(hosts)));
}

// The GPUs that become free first; nothing if no end of a lease is known.
void add_next_free(StyledLine& line, const TopSnapshot& snapshot, const Canvas& canvas,
                   TimePoint now) {
  const Status* first = nullptr;
  for (const Status& host : snapshot.hosts) {
    if (!host.next_free || host.next_free->at <= now) continue;
    if (first == nullptr || host.next_free->at < first->next_free->at) first = &host;
  }
  if (first == nullptr) return;
  const NextFree& next = *first->next_free;
  const bool is_estimate = next.source == EndSource::estimated;
  line.add(Style::plain,
           fmt::format("{} next free: {}{} in {}{}", line.pieces.empty() ? "" : " ",
                       format_gpu_list(next.gpus), canvas.escape(on_host(*first, snapshot)),
                       is_estimate ? "about " : "", format_minutes(now, next.at)));
}

StyledLine usage_text(const HostUsage& usage) {
  StyledLine line;
  if (usage.cpu_share) {
    line.add(Style::dim, "  CPU ")
        .add(load_style(*usage.cpu_share),
             format_value(std::optional(100 * *usage.cpu_share), "%"));
  }
  if (usage.memory_used && usage.memory_total) {
    const double share = static_cast<double>(usage.memory_used->count) /
                         static_cast<double>(usage.memory_total->count);
    const auto in_gib = [](Bytes size) { return static_cast<double>(size.count) / (1U << 30U); };
    line.add(Style::dim, "  RAM ")
        .add(memory_style(share) == Style::warning ? Style::warning : Style::plain,
             fmt::format("{:.0f}/{:.0f} GiB", in_gib(*usage.memory_used),
                         in_gib(*usage.memory_total)));
  }
  return std::move(line.add(Style::plain, " "));
}

StyledLine free_line(const TopSnapshot& snapshot, const Canvas& canvas, TimePoint now) {
  StyledLine line;
  if (snapshot.last_success) {
    add_free_gpus(line, snapshot, canvas);
    add_next_free(line, snapshot, canvas, now);
    if (line.pieces.empty()) line.add(Style::dim, " no GPU is free, and no end is known");
  }
  return justified_line(std::move(line), usage_text(snapshot.usage), canvas);
}

}  // namespace

std::vector<StyledLine> head_lines(const Model& model, const Canvas& canvas, TimePoint now) {
  return {counts_line(model, canvas, now), free_line(model.snapshot(), canvas, now)};
}

}  // namespace berth::top
