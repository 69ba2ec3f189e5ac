// Measurements since the start of `berth top`, in a limited number of points, for plots.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "status/status.h"

namespace berth::top {

// Values of equal time spans. It covers the whole time: when it is full, it merges pairs of points.
class Series {
 public:
  static constexpr std::size_t kMaxPoints = 512;

  // Adds the value of the next span; nullopt: unknown.
  void add(std::optional<double> value);

  // The whole time, oldest first, as at most `columns` values: each is the average of the known
  // values of its time, or nullopt.
  std::vector<std::optional<double>> columns(std::size_t columns) const;

 private:
  struct Point {
    double sum = 0;
    std::size_t known = 0;  // spans with a value
    std::size_t spans = 0;
  };
  static void merge(Point& into, const Point& other);

  std::vector<Point> points_;
  std::size_t spans_per_point_ = 1;
};

// The series of one GPU, with values from 0 to 1.
struct GpuSeries {
  Series utilization;
  Series memory;
  std::size_t spans = 0;
};

// The series of all GPUs of all hosts, since the first snapshot. Used by one thread.
class PlotHistory {
 public:
  using Clock = std::chrono::steady_clock;

  explicit PlotHistory(std::chrono::milliseconds span) : span_(span) {}

  // Adds the values at `now`. Only the first snapshot of each span counts. Spans without a snapshot
  // are unknown; but a snapshot that is a few spans late also counts for those.
  void add_snapshot(const std::vector<Status>& hosts, Clock::time_point now);

  // Null if no snapshot had the GPU.
  const GpuSeries* find(const Status& host, const Gpu& gpu) const;

  // The time that the series cover.
  std::chrono::seconds duration() const;

 private:
  using GpuKey = std::pair<std::string, std::string>;  // host, and UUID or index
  static GpuKey make_gpu_key(const Status& host, const Gpu& gpu);

  std::chrono::milliseconds span_;
  std::optional<Clock::time_point> begin_;
  std::size_t spans_ = 0;  // so far
  std::map<GpuKey, GpuSeries> gpus_;
};

}  // namespace berth::top
