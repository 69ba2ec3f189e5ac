// Stores the samples of the last hour and renders them as JSON; see gpu_load_samples.h.
#include "serve/gpu_load_samples.h"

#include <algorithm>
#include <utility>

#include "base/json_fields.h"
#include "base/time_text.h"

namespace berth::serve {
namespace {

std::int64_t slot_of(TimePoint time) {
  return std::chrono::floor<std::chrono::seconds>(time.time_since_epoch()).count() /
         kSampleInterval.count();
}

TimePoint time_of(std::int64_t slot) {
  return TimePoint(std::chrono::seconds(slot * kSampleInterval.count()));
}

// A list of hosts, each with its GPUs. `to_json(uuid, points)` makes the object of a GPU.
template <class Gpus, class ToJson>
Json hosts_json(const Gpus& gpus, const ToJson& to_json) {
  Json hosts = Json::array();
  for (auto at = gpus.begin(); at != gpus.end();) {
    const std::string& host = at->first.first;
    Json list = Json::array();
    for (; at != gpus.end() && at->first.first == host; ++at) {
      list.push_back(to_json(at->first.second, at->second));
    }
    hosts.push_back({{"host", host}, {"gpus", std::move(list)}});
  }
  return hosts;
}

}  // namespace

// Adds an unknown point to every GPU, and removes GPUs that have only unknown points.
void GpuLoadSamples::add_point() {
  count_ = std::min(count_ + 1, kMaxSamples);
  for (auto& [name, points] : gpus_) {
    points.emplace_back();
    if (points.size() > kMaxSamples) points.pop_front();
  }
  std::erase_if(gpus_, [](const auto& one) {
    const auto& points = one.second;
    return std::all_of(points.begin(), points.end(), [](const SamplePoint& point) {
      return !point.utilization_pct && !point.memory_used_mib;
    });
  });
}

bool GpuLoadSamples::add_sample(const std::vector<Status>& hosts, TimePoint now) {
  const std::int64_t slot = slot_of(now);
  if (slot_ && slot <= *slot_ && *slot_ - slot < std::int64_t{kMaxSamples}) return false;
  // After a large jump of the clock, in either direction, the old points are useless.
  if (slot_ && (slot < *slot_ || slot - *slot_ > std::int64_t{kMaxSamples})) {
    gpus_.clear();
    count_ = 0;
    slot_.reset();
  }
  for (std::int64_t at = slot_.value_or(slot - 1); at < slot; ++at) add_point();
  slot_ = slot;
  for (const Status& host : hosts) {
    for (const GpuStatus& one : host.gpus) {
      const Gpu& gpu = one.view.gpu;
      if (!gpu.uuid) continue;
      auto& points = gpus_[{host.host, *gpu.uuid}];
      if (points.empty()) points.resize(count_);
      std::optional<std::uint64_t> used;
      if (gpu.memory_used) used = to_mib(*gpu.memory_used);
      points.back() = {gpu.utilization_pct, used};
    }
  }
  return true;
}

Json GpuLoadSamples::all_hosts_json() const {
  return hosts_json(gpus_, [](const std::string& uuid, const auto& points) -> Json {
    Json load = Json::array();
    Json memory = Json::array();
    for (const SamplePoint& point : points) {
      load.push_back(or_null(point.utilization_pct));
      memory.push_back(or_null(point.memory_used_mib));
    }
    return {{"uuid", uuid},
            {"utilization_pct", std::move(load)},
            {"memory_used_mib", std::move(memory)}};
  });
}

std::string GpuLoadSamples::all_json() const {
  return to_ascii_json({{"interval_s", kSampleInterval.count()},
                        {"until", slot_ ? Json(format_iso_time(time_of(*slot_))) : Json(nullptr)},
                        {"hosts", all_hosts_json()}});
}

std::string GpuLoadSamples::serialize() const {
  return to_ascii_json({{"slot", or_null(slot_)}, {"hosts", all_hosts_json()}}) + "\n";
}

void GpuLoadSamples::restore(std::string_view text, TimePoint now) {
  const Json json = parse_json(text).value_or(Json());
  const auto slot = number_field<std::int64_t>(json, "slot");
  const Json::Array* hosts = array_field(json, "hosts");
  const std::int64_t present = slot_of(now);
  if (!slot || *slot > present || present - *slot >= std::int64_t{kMaxSamples} || !hosts) return;
  slot_ = slot;
  count_ = kMaxSamples;
  gpus_.clear();
  for (const Json& host : *hosts) {
    const Json::Array* gpus = array_field(host, "gpus");
    if (gpus == nullptr) continue;
    for (const Json& gpu : *gpus) restore_gpu(string_field(host, "host"), gpu);
  }
}

// Samples before the first one of the file are unknown.
void GpuLoadSamples::restore_gpu(const std::string& host, const Json& gpu) {
  const std::string uuid = string_field(gpu, "uuid");
  const Json::Array* load = array_field(gpu, "utilization_pct");
  const Json::Array* memory = array_field(gpu, "memory_used_mib");
  if (uuid.empty() || !load || !memory || load->size() != memory->size()) return;
  auto& points = gpus_[{host, uuid}];
  points.assign(kMaxSamples, {});
  const std::size_t known = std::min(load->size(), kMaxSamples);
  for (std::size_t i = 1; i <= known; ++i) {
    SamplePoint& point = points[kMaxSamples - i];
    const auto percent = (*load)[load->size() - i].as_unsigned();
    if (percent && *percent <= 100) point.utilization_pct = static_cast<unsigned>(*percent);
    point.memory_used_mib = (*memory)[memory->size() - i].as_unsigned();
  }
}

std::string GpuLoadSamples::newest_json() const {
  Json hosts = hosts_json(gpus_, [](const std::string& uuid, const auto& points) -> Json {
    const SamplePoint& last = points.back();
    return {{"uuid", uuid},
            {"utilization_pct", or_null(last.utilization_pct)},
            {"memory_used_mib", or_null(last.memory_used_mib)}};
  });
  return to_ascii_json({{"time", slot_ ? Json(format_iso_time(time_of(*slot_))) : Json(nullptr)},
                        {"hosts", std::move(hosts)}});
}

}  // namespace berth::serve
