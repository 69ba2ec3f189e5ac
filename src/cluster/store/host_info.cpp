// Host information as JSON; see host_info.h.
#include "cluster/store/host_info.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/json_fields.h"
#include "base/text.h"

namespace berth {
namespace {

constexpr int kFormatVersion = 1;
constexpr std::size_t kMaxGpus = 1024;
constexpr std::size_t kMaxProcesses = 64;  // of each GPU; longer lists do not help readers
constexpr std::size_t kMaxTextLength = 256;

constexpr std::array<std::pair<Health, const char*>, 3> kHealthNames{
    {{Health::ok, "ok"}, {Health::lost, "lost"}, {Health::unreadable, "unreadable"}}};

template <class T>
void put_optional(Json& object, const char* key, const std::optional<T>& value) {
  if (value) object[key] = *value;
}

void put_optional(Json& object, const char* key, const std::optional<Bytes>& size) {
  if (size) object[key] = size->count;
}

Json process_to_json(const AttributedProcess& attributed) {
  Json json{{"pid", attributed.process.pid},
            {"display", attributed.process.kind == ProcessKind::graphics},
            {"daemon", attributed.daemon},
            {"lease", attributed.lease}};
  put_optional(json, "memory", attributed.process.memory);
  put_optional(json, "name", attributed.process.name);
  put_optional(json, "uid", attributed.process.uid);
  return json;
}

Json gpu_to_json(const GpuWithLeases& gpu_entry) {
  const Gpu& gpu = gpu_entry.gpu;
  const auto health = std::find_if(kHealthNames.begin(), kHealthNames.end(),
                                   [&](const auto& one) { return one.first == gpu.health; });
  Json processes = Json::array();
  for (const AttributedProcess& process : gpu_entry.processes) {
    if (processes.size() < kMaxProcesses) processes.push_back(process_to_json(process));
  }
  Json json{{"index", to_string(gpu.index)},
            {"health", health->second},
            {"problem", gpu.problem},
            {"prohibited", gpu.compute_mode == ComputeMode::prohibited},
            {"mig_without_instances", gpu.mig_without_instances},
            {"processes", std::move(processes)}};
  put_optional(json, "uuid", gpu.uuid);
  put_optional(json, "name", gpu.name);
  put_optional(json, "memory_total", gpu.memory_total);
  put_optional(json, "memory_used", gpu.memory_used);
  if (gpu.memory_is_hosts) json["memory_is_hosts"] = true;
  put_optional(json, "unexplained", gpu_entry.unexplained);
  put_optional(json, "utilization_pct", gpu.utilization_pct);
  put_optional(json, "memory_utilization_pct", gpu.memory_utilization_pct);
  put_optional(json, "temperature_c", gpu.temperature_c);
  put_optional(json, "power_w", gpu.power_w);
  return json;
}

// These read a missing or invalid value as unknown.
std::optional<Bytes> read_bytes(const Json& object, const char* key) {
  const auto count = number_field(object, key);
  return count ? std::optional(Bytes{*count}) : std::nullopt;
}

std::optional<std::string> read_text(const Json& object, const char* key) {
  const Json* value = object.find(key);
  if (value == nullptr || value->as_string() == nullptr) return std::nullopt;
  return value->as_string()->substr(0, kMaxTextLength);
}

std::optional<GpuIndex> parse_gpu_index(const std::string& written) {
  const auto colon = written.find(':');
  const auto card = parse_integer<unsigned>(std::string_view(written).substr(0, colon));
  if (!card) return std::nullopt;
  if (colon == std::string::npos) return GpuIndex{*card, std::nullopt};
  const auto instance = parse_integer<unsigned>(std::string_view(written).substr(colon + 1));
  if (!instance) return std::nullopt;
  return GpuIndex{*card, instance};
}

AttributedProcess parse_process(const Json& json) {
  AttributedProcess attributed;
  attributed.process.pid = number_field<std::int64_t>(json, "pid").value_or(0);
  attributed.process.kind =
      bool_field(json, "display") ? ProcessKind::graphics : ProcessKind::compute;
  attributed.process.memory = read_bytes(json, "memory");
  attributed.process.name = read_text(json, "name");
  attributed.process.uid = number_field<uid_t>(json, "uid");
  attributed.daemon = bool_field(json, "daemon");
  attributed.lease = read_text(json, "lease").value_or("");
  return attributed;
}

std::optional<GpuWithLeases> parse_gpu(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  const auto index = parse_gpu_index(read_text(json, "index").value_or(""));
  if (!index) return std::nullopt;
  GpuWithLeases gpu_entry;
  Gpu& gpu = gpu_entry.gpu;
  gpu.index = *index;
  const std::string health = read_text(json, "health").value_or("");
  gpu.health = Health::unreadable;  // an unknown word must not make it free
  for (const auto& [value, word] : kHealthNames) {
    if (health == word) gpu.health = value;
  }
  gpu.problem = read_text(json, "problem").value_or("");
  if (bool_field(json, "prohibited")) gpu.compute_mode = ComputeMode::prohibited;
  gpu.mig_without_instances = bool_field(json, "mig_without_instances");
  gpu.uuid = read_text(json, "uuid");
  gpu.name = read_text(json, "name");
  gpu.memory_total = read_bytes(json, "memory_total");
  gpu.memory_used = read_bytes(json, "memory_used");
  gpu.memory_is_hosts = bool_field(json, "memory_is_hosts");
  gpu_entry.unexplained = read_bytes(json, "unexplained");
  gpu.utilization_pct = number_field<unsigned>(json, "utilization_pct");
  gpu.memory_utilization_pct = number_field<unsigned>(json, "memory_utilization_pct");
  gpu.temperature_c = number_field<unsigned>(json, "temperature_c");
  if (const Json* power = json.find("power_w")) gpu.power_w = power->as_number();
  const Json::Array* processes = array_field(json, "processes");
  if (processes == nullptr) return gpu_entry;
  for (const Json& process : *processes) {
    if (process.is_object() && gpu_entry.processes.size() < kMaxProcesses) {
      gpu_entry.processes.push_back(parse_process(process));
    }
  }
  return gpu_entry;
}

}  // namespace

std::string format_host_info(const HostView& view, const std::optional<std::string>& driver,
                             bool simulated) {
  Json gpus = Json::array();
  for (const GpuWithLeases& gpu_entry : view.gpus) gpus.push_back(gpu_to_json(gpu_entry));
  Json json{{"version", kFormatVersion}, {"simulated", simulated}, {"gpus", std::move(gpus)}};
  put_optional(json, "driver", driver);
  return to_sorted_json(json);
}

Result<HostInfo> parse_host_info(std::string_view written) {
  const auto wrong = [](const char* why) { return fail(ErrorKind::io, why); };
  const Json json = parse_json(written).value_or(Json());
  if (!json.is_object()) return wrong("its host information is not a JSON object");
  if (number_field<int>(json, "version") != kFormatVersion)
    return wrong("its host information has another format version");
  const Json::Array* gpus = array_field(json, "gpus");
  if (gpus == nullptr || gpus->size() > kMaxGpus) {
    return wrong("its host information has no valid list of GPUs");
  }
  HostInfo info;
  info.driver = read_text(json, "driver");
  info.simulated = bool_field(json, "simulated");
  for (const Json& one : *gpus) {
    auto gpu = parse_gpu(one);
    if (!gpu) return wrong("its host information has a GPU without a valid index");
    info.gpus.push_back(std::move(*gpu));
  }
  return info;
}

}  // namespace berth
