// The card as JSON; see host_card.h.
#include "cluster/store/host_info.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

namespace berth {
namespace {

using Json = nlohmann::json;

constexpr int kVersion = 1;
constexpr std::size_t kMostGpus = 1024;
constexpr std::size_t kMostProcesses = 64;  // of a GPU; more than that nobody reads
constexpr std::size_t kLongestText = 256;

constexpr std::array<std::pair<Health, const char*>, 3> kHealths{
    {{Health::ok, "ok"}, {Health::lost, "lost"}, {Health::unreadable, "unreadable"}}};

template <class T>
void put(Json& object, const char* key, const std::optional<T>& value) {
  if (value) object[key] = *value;
}

void put(Json& object, const char* key, const std::optional<Bytes>& size) {
  if (size) object[key] = size->count;
}

Json process_json(const AttributedProcess& placed) {
  Json json{{"pid", placed.process.pid},
            {"display", placed.process.kind == ProcessKind::graphics},
            {"daemon", placed.daemon},
            {"lease", placed.lease}};
  put(json, "memory", placed.process.memory);
  put(json, "name", placed.process.name);
  put(json, "uid", placed.process.uid);
  return json;
}

Json gpu_json(const GpuWithLeases& placed) {
  const Gpu& gpu = placed.gpu;
  const auto health = std::find_if(kHealths.begin(), kHealths.end(),
                                   [&](const auto& one) { return one.first == gpu.health; });
  Json json{{"index", to_string(gpu.index)},
            {"health", health->second},
            {"problem", gpu.problem},
            {"prohibited", gpu.compute_mode == ComputeMode::prohibited},
            {"mig_without_instances", gpu.mig_without_instances},
            {"processes", Json::array()}};
  put(json, "uuid", gpu.uuid);
  put(json, "name", gpu.name);
  put(json, "memory_total", gpu.memory_total);
  put(json, "memory_used", gpu.memory_used);
  if (gpu.memory_is_hosts) json["memory_is_hosts"] = true;
  put(json, "unexplained", placed.unexplained);
  put(json, "utilization_pct", gpu.utilization_pct);
  put(json, "memory_utilization_pct", gpu.memory_utilization_pct);
  put(json, "temperature_c", gpu.temperature_c);
  put(json, "power_w", gpu.power_w);
  for (const AttributedProcess& process : placed.processes) {
    if (json["processes"].size() < kMostProcesses)
      json["processes"].push_back(process_json(process));
  }
  return json;
}

// What is not there, or is not what it should be, is unknown.
template <class Number>
std::optional<Number> number(const Json& object, const char* key) {
  const auto value = object.find(key);
  if (value == object.end() || !value->is_number_unsigned()) return std::nullopt;
  const auto found = value->get<std::uint64_t>();
  if (!std::in_range<Number>(found)) return std::nullopt;
  return static_cast<Number>(found);
}

std::optional<Bytes> bytes(const Json& object, const char* key) {
  const auto count = number<std::uint64_t>(object, key);
  return count ? std::optional(Bytes{*count}) : std::nullopt;
}

std::optional<std::string> text(const Json& object, const char* key) {
  const auto value = object.find(key);
  if (value == object.end() || !value->is_string()) return std::nullopt;
  return value->get_ref<const std::string&>().substr(0, kLongestText);
}

bool is_set(const Json& object, const char* key) {
  const auto value = object.find(key);
  return value != object.end() && value->is_boolean() && value->get<bool>();
}

std::optional<GpuIndex> index_of(const std::string& written) {
  const auto parse = [](std::string_view digits) -> std::optional<unsigned> {
    unsigned value = 0;
    const char* end = digits.data() + digits.size();
    const auto [stop, problem] = std::from_chars(digits.data(), end, value);
    return problem == std::errc{} && stop == end ? std::optional(value) : std::nullopt;
  };
  const auto colon = written.find(':');
  const auto card = parse(std::string_view(written).substr(0, colon));
  if (!card) return std::nullopt;
  if (colon == std::string::npos) return GpuIndex{*card, std::nullopt};
  const auto instance = parse(std::string_view(written).substr(colon + 1));
  if (!instance) return std::nullopt;
  return GpuIndex{*card, instance};
}

AttributedProcess process_of(const Json& json) {
  AttributedProcess placed;
  placed.process.pid = number<std::int64_t>(json, "pid").value_or(0);
  placed.process.kind = is_set(json, "display") ? ProcessKind::graphics : ProcessKind::compute;
  placed.process.memory = bytes(json, "memory");
  placed.process.name = text(json, "name");
  placed.process.uid = number<uid_t>(json, "uid");
  placed.daemon = is_set(json, "daemon");
  placed.lease = text(json, "lease").value_or("");
  return placed;
}

std::optional<GpuWithLeases> gpu_of(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  const auto index = index_of(text(json, "index").value_or(""));
  if (!index) return std::nullopt;
  GpuWithLeases placed;
  Gpu& gpu = placed.gpu;
  gpu.index = *index;
  const std::string health = text(json, "health").value_or("");
  gpu.health = Health::unreadable;  // unknown is not free
  for (const auto& [value, word] : kHealths) {
    if (health == word) gpu.health = value;
  }
  gpu.problem = text(json, "problem").value_or("");
  if (is_set(json, "prohibited")) gpu.compute_mode = ComputeMode::prohibited;
  gpu.mig_without_instances = is_set(json, "mig_without_instances");
  gpu.uuid = text(json, "uuid");
  gpu.name = text(json, "name");
  gpu.memory_total = bytes(json, "memory_total");
  gpu.memory_used = bytes(json, "memory_used");
  gpu.memory_is_hosts = is_set(json, "memory_is_hosts");
  placed.unexplained = bytes(json, "unexplained");
  gpu.utilization_pct = number<unsigned>(json, "utilization_pct");
  gpu.memory_utilization_pct = number<unsigned>(json, "memory_utilization_pct");
  gpu.temperature_c = number<unsigned>(json, "temperature_c");
  const auto power = json.find("power_w");
  if (power != json.end() && power->is_number()) gpu.power_w = power->get<double>();
  const auto processes = json.find("processes");
  if (processes == json.end() || !processes->is_array()) return placed;
  for (const Json& process : *processes) {
    if (process.is_object() && placed.processes.size() < kMostProcesses) {
      placed.processes.push_back(process_of(process));
    }
  }
  return placed;
}

}  // namespace

std::string write_card(const HostView& scene, const std::optional<std::string>& driver,
                       bool simulated) {
  Json json{{"version", kVersion}, {"simulated", simulated}, {"gpus", Json::array()}};
  put(json, "driver", driver);
  for (const GpuWithLeases& placed : scene.gpus) json["gpus"].push_back(gpu_json(placed));
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

Result<HostInfo> read_card(std::string_view written) {
  const auto wrong = [](const char* why) { return fail(ErrorKind::io, why); };
  const Json json = Json::parse(written, nullptr, false);
  if (!json.is_object()) return wrong("its card is no JSON object");
  if (number<int>(json, "version") != kVersion) return wrong("its card is of another version");
  const auto gpus = json.find("gpus");
  if (gpus == json.end() || !gpus->is_array() || gpus->size() > kMostGpus) {
    return wrong("its card has no list of GPUs");
  }
  HostInfo card;
  card.driver = text(json, "driver");
  card.simulated = is_set(json, "simulated");
  for (const Json& one : *gpus) {
    auto gpu = gpu_of(one);
    if (!gpu) return wrong("its card has a GPU without an index");
    card.gpus.push_back(std::move(*gpu));
  }
  return card;
}

}  // namespace berth
