// What was measured since the view was started, in no more points than a plot can show.
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

// Values of equal spans of time. It keeps the whole time: when it is full, two points become one.
class Series {
 public:
  static constexpr std::size_t kMaxPoints = 512;

  // Of the next span; nothing if nobody knew.
  void add(std::optional<double> value);

  // The whole time, oldest first: at most `columns` values, each the average of what was known.
  std::vector<std::optional<double>> columns(std::size_t columns) const;

 private:
  struct Point {
    double sum = 0;
    std::size_t known = 0;  // of the spans, those with a value
    std::size_t spans = 0;
  };
  static void merge(Point& into, const Point& other);

  std::vector<Point> points_;
  std::size_t spans_per_point_ = 1;  // spans of a point that is complete
};

// Shares of 0 to 1 of each GPU.
struct GpuSeries {
  Series utilization;
  Series memory;
  std::size_t spans = 0;
};

// Of all GPUs of all hosts, from the first look on.
class PlotHistory {
 public:
  using Clock = std::chrono::steady_clock;

  explicit PlotHistory(std::chrono::milliseconds span) : span_(span) {}

  // What was seen at `now`. One value counts for each span of time; spans in which nobody
  // looked are unknown, but for one or two.
  void add_snapshot(const std::vector<Status>& hosts, Clock::time_point now);

  // Nothing if the GPU was never seen.
  const GpuSeries* find(const Status& host, const Gpu& gpu) const;

  // How long it has been.
  std::chrono::seconds duration() const;

 private:
  using GpuKey = std::pair<std::string, std::string>;  // host, and UUID or index
  static GpuKey make_gpu_key(const Status& host, const Gpu& gpu);

  std::chrono::milliseconds span_;
  std::optional<Clock::time_point> begin_;
  std::size_t spans_ = 0;  // until now
  std::map<GpuKey, GpuSeries> gpus_;
};

}  // namespace berth::top
