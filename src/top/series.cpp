// Points that stand closer and closer; see series.h.
#include "top/series.h"

#include <algorithm>

namespace berth::top {
namespace {

constexpr std::size_t kLate = 2;  // spans

std::optional<double> memory_share(const Gpu& gpu) {
  if (!gpu.memory_total || !gpu.memory_used || gpu.memory_total->count == 0) return std::nullopt;
  return static_cast<double>(gpu.memory_used->count) / static_cast<double>(gpu.memory_total->count);
}

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
  if (points_.empty() || points_.back().spans == full_) {
    if (points_.size() == kMost) {
      for (std::size_t i = 0; i < kMost / 2; ++i) {
        Point pair = points_[2 * i];
        merge(pair, points_[2 * i + 1]);
        points_[i] = pair;
      }
      points_.resize(kMost / 2);
      full_ *= 2;
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

History::Key History::key_of(const Status& host, const Gpu& gpu) {
  return {host.host, gpu.uuid.value_or(to_string(gpu.index))};
}

void History::note(const std::vector<Status>& hosts, Clock::time_point now) {
  if (!begin_) begin_ = now;
  const auto span = static_cast<std::size_t>((now - *begin_) / span_);
  if (span < spans_) return;  // this one has its value
  std::map<Key, const Gpu*> seen;
  for (const Status& host : hosts) {
    for (const GpuStatus& one : host.gpus) {
      seen[key_of(host, one.placed.gpu)] = &one.placed.gpu;
      tracks_.try_emplace(key_of(host, one.placed.gpu));
    }
  }
  for (auto& [key, track] : tracks_) {
    const auto found = seen.find(key);
    const Gpu* gpu = found == seen.end() ? nullptr : found->second;
    const auto utilization = gpu == nullptr ? std::nullopt : utilization_share(*gpu);
    const auto memory = gpu == nullptr ? std::nullopt : memory_share(*gpu);
    // Before it was first seen, and while nobody looked. A look that is late counts for its time.
    const bool late = span - track.spans <= kLate;
    for (; track.spans <= span; ++track.spans) {
      const bool counts = late || track.spans == span;
      track.utilization.add(counts ? utilization : std::nullopt);
      track.memory.add(counts ? memory : std::nullopt);
    }
  }
  spans_ = span + 1;
}

const Track* History::of(const Status& host, const Gpu& gpu) const {
  const auto found = tracks_.find(key_of(host, gpu));
  return found == tracks_.end() ? nullptr : &found->second;
}

std::chrono::seconds History::length() const {
  return std::chrono::floor<std::chrono::seconds>(span_ * spans_);
}

}  // namespace berth::top
