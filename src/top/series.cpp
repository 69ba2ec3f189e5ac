// Adds values to series and merges their points; see series.h.
#include "top/series.h"

#include <algorithm>

#include "status/status_format.h"

namespace berth::top {
namespace {

// A snapshot that is at most this late has no unknown spans: a host whose processors are busy
// answers late, and its plots must not look as if the driver had failed.
constexpr std::size_t kLateSpans = 5;

std::optional<double> utilization_share(const Gpu& gpu) {
  if (!gpu.utilization_pct) return std::nullopt;
  return static_cast<double>(*gpu.utilization_pct) / 100;
}

}  // namespace

void Series::merge(Point& into, const Point& other) {
  into.sum += other.sum;
  into.known += other.known;
  into.spans += other.spans;
}

void Series::add(std::optional<double> value) {
  if (points_.empty() || points_.back().spans == spans_per_point_) {
    if (points_.size() == kMaxPoints) {
      for (std::size_t i = 0; i < kMaxPoints / 2; ++i) {
        Point pair = points_[2 * i];
        merge(pair, points_[2 * i + 1]);
        points_[i] = pair;
      }
      points_.resize(kMaxPoints / 2);
      spans_per_point_ *= 2;
    }
    points_.push_back({});
  }
  merge(points_.back(), {value.value_or(0), value ? 1UL : 0UL, 1});
}

std::vector<std::optional<double>> Series::columns(std::size_t columns) const {
  const std::size_t count = std::min(columns, points_.size());
  std::vector<std::optional<double>> values;
  for (std::size_t c = 0; c < count; ++c) {
    Point all;
    for (std::size_t i = c * points_.size() / count; i < (c + 1) * points_.size() / count; ++i) {
      merge(all, points_[i]);
    }
    values.push_back(all.known == 0 ? std::nullopt
                                    : std::optional(all.sum / static_cast<double>(all.known)));
  }
  return values;
}

PlotHistory::GpuKey PlotHistory::make_gpu_key(const Status& host, const Gpu& gpu) {
  return {host.host, gpu.uuid.value_or(to_string(gpu.index))};
}

void PlotHistory::add_snapshot(const std::vector<Status>& hosts, Clock::time_point now) {
  if (!begin_) begin_ = now;
  const auto span = static_cast<std::size_t>((now - *begin_) / span_);
  if (span < spans_) return;  // this span has its value
  std::map<GpuKey, const Gpu*> seen_gpus;
  for (const Status& host : hosts) {
    for (const GpuStatus& one : host.gpus) {
      seen_gpus[make_gpu_key(host, one.view.gpu)] = &one.view.gpu;
      gpus_.try_emplace(make_gpu_key(host, one.view.gpu));
    }
  }
  for (auto& [key, gpu_series] : gpus_) {
    const auto found = seen_gpus.find(key);
    const Gpu* gpu = found == seen_gpus.end() ? nullptr : found->second;
    const auto utilization = gpu == nullptr ? std::nullopt : utilization_share(*gpu);
    const auto memory = gpu == nullptr ? std::nullopt : memory_share(*gpu);
    // Spans before the GPU first appeared, and spans without a snapshot, are unknown. A snapshot
    // that is only a little late also counts for the spans that it missed.
    const bool late = span - gpu_series.spans <= kLateSpans;
    for (; gpu_series.spans <= span; ++gpu_series.spans) {
      const bool counts = late || gpu_series.spans == span;
      gpu_series.utilization.add(counts ? utilization : std::nullopt);
      gpu_series.memory.add(counts ? memory : std::nullopt);
    }
  }
  spans_ = span + 1;
}

const GpuSeries* PlotHistory::find(const Status& host, const Gpu& gpu) const {
  const auto found = gpus_.find(make_gpu_key(host, gpu));
  return found == gpus_.end() ? nullptr : &found->second;
}

std::chrono::seconds PlotHistory::duration() const {
  return std::chrono::floor<std::chrono::seconds>(span_ * spans_);
}

}  // namespace berth::top
