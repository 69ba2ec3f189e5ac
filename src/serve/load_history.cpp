// The last hour; see samples.h.
#include "serve/load_history.h"

#include <algorithm>
#include <utility>

#include "base/json.h"

namespace berth {
namespace {

std::int64_t slot_of(TimePoint time) {
  return std::chrono::floor<std::chrono::seconds>(time.time_since_epoch()).count() /
         kSampleInterval.count();
}

TimePoint time_of(std::int64_t slot) {
  return TimePoint(std::chrono::seconds(slot * kSampleInterval.count()));
}

std::string text(const Json& json) {
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

}  // namespace

// Everybody's next point, unknown as yet.
void Samples::add_point() {
  count_ = std::min(count_ + 1, kMostSamples);
  for (auto& [name, track] : tracks_) {
    track.points.emplace_back();
    if (track.points.size() > kMostSamples) track.points.pop_front();
  }
  std::erase_if(tracks_, [](const auto& one) {
    const auto& points = one.second.points;
    return std::all_of(points.begin(), points.end(), [](const Point& point) {
      return !point.utilization_pct && !point.memory_used_mib;
    });
  });
}

bool Samples::take(const std::vector<Status>& hosts, TimePoint now) {
  const std::int64_t slot = slot_of(now);
  if (slot_ && slot <= *slot_ && *slot_ - slot < std::int64_t{kMostSamples}) return false;
  // A clock that was put far back, or forward, begins anew.
  if (slot_ && (slot < *slot_ || slot - *slot_ > std::int64_t{kMostSamples})) {
    tracks_.clear();
    count_ = 0;
    slot_.reset();
  }
  for (std::int64_t at = slot_.value_or(slot - 1); at < slot; ++at) add_point();
  slot_ = slot;
  for (const Status& host : hosts) {
    for (const GpuStatus& one : host.gpus) {
      const Gpu& gpu = one.placed.gpu;
      if (!gpu.uuid) continue;
      auto& points = tracks_[{host.host, *gpu.uuid}].points;
      if (points.empty()) points.resize(count_);
      std::optional<std::uint64_t> used;
      if (gpu.memory_used) used = to_mib(*gpu.memory_used);
      points.back() = {gpu.utilization_pct, used};
    }
  }
  return true;
}

std::string Samples::all() const {
  Json hosts = Json::array();
  for (const auto& [name, track] : tracks_) {
    if (hosts.empty() || hosts.back()["host"] != name.first) {
      hosts.push_back({{"host", name.first}, {"gpus", Json::array()}});
    }
    Json load = Json::array();
    Json memory = Json::array();
    for (const Point& point : track.points) {
      load.push_back(or_null(point.utilization_pct));
      memory.push_back(or_null(point.memory_used_mib));
    }
    hosts.back()["gpus"].push_back(
        {{"uuid", name.second}, {"utilization_pct", load}, {"memory_used_mib", memory}});
  }
  return text({{"interval_s", kSampleInterval.count()},
               {"until", slot_ ? Json(iso_time(time_of(*slot_))) : Json(nullptr)},
               {"hosts", hosts}});
}

std::string Samples::newest() const {
  Json hosts = Json::array();
  for (const auto& [name, track] : tracks_) {
    if (hosts.empty() || hosts.back()["host"] != name.first) {
      hosts.push_back({{"host", name.first}, {"gpus", Json::array()}});
    }
    const Point& last = track.points.back();
    hosts.back()["gpus"].push_back({{"uuid", name.second},
                                    {"utilization_pct", or_null(last.utilization_pct)},
                                    {"memory_used_mib", or_null(last.memory_used_mib)}});
  }
  return text(
      {{"time", slot_ ? Json(iso_time(time_of(*slot_))) : Json(nullptr)}, {"hosts", hosts}});
}

}  // namespace berth
