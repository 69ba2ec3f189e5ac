// Formats and parses records as JSON; see record.h.
#include "harbour/record.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <fmt/format.h>
#include <sys/random.h>

#include "base/json_fields.h"

namespace berth {
namespace {

constexpr std::string_view kIdLetters = "abcdefghijkmnpqrstuvwxyz23456789";  // no l, o, 0, 1
constexpr std::size_t kIdLength = 8;
constexpr std::size_t kMaxCommandLength = 4096;
constexpr std::size_t kMaxLabelLength = 256;
constexpr int kMaxDepth = 16;  // more than any record has
// Every JSON parser keeps numbers up to this exactly.
constexpr std::uint64_t kMaxNumber = 1ULL << 53;

std::uint64_t to_ms(TimePoint time) {
  const auto since = std::chrono::floor<std::chrono::milliseconds>(time.time_since_epoch()).count();
  return since > 0 ? static_cast<std::uint64_t>(since) : 0;
}

TimePoint from_ms(std::uint64_t ms) {
  // The year 2096: adding a run time does not overflow.
  constexpr std::uint64_t kMaxTimeMs = 4'000'000'000'000;
  return TimePoint(std::chrono::milliseconds(std::min(ms, kMaxTimeMs)));
}

Json bytes_or_null(const std::optional<Bytes>& size) {
  return size ? Json(size->count) : Json(nullptr);
}

constexpr std::array<std::pair<Policy, const char*>, 3> kPolicies{
    {{Policy::spread, "spread"}, {Policy::pack, "pack"}, {Policy::random, "random"}}};

// Reads fields of an object, and stores the first problem in `problem`.
class FieldReader {
 public:
  FieldReader(const Json& object, std::string& problem) : object_(object), problem_(problem) {}

  std::optional<std::uint64_t> number(const char* key, std::uint64_t maximum = kMaxNumber) {
    const Json* value = find(key);
    if (value == nullptr) return std::nullopt;
    const auto number = value->as_unsigned();
    if (number && *number <= maximum) return number;
    return set_problem(key);
  }

  std::uint64_t required_number(const char* key, std::uint64_t maximum = kMaxNumber) {
    const auto value = number(key, maximum);
    if (!value) set_problem(key);
    return value.value_or(0);
  }

  std::optional<std::string> text(const char* key, std::size_t max_length) {
    const Json* value = find(key);
    if (value == nullptr) return std::nullopt;
    const std::string* text = value->as_string();
    if (text != nullptr && text->size() <= max_length) return *text;
    return set_problem(key);
  }

  bool flag(const char* key) {
    const Json* value = find(key);
    if (value == nullptr) return false;
    const auto flag = value->as_bool();
    if (!flag) set_problem(key);
    return flag.value_or(false);
  }

  std::optional<std::vector<std::string>> strings(const char* key) {
    constexpr std::size_t kMaxStrings = 4096;
    const Json* value = find(key);
    if (value == nullptr) return std::nullopt;
    const Json::Array* items = value->as_array();
    if (items == nullptr || items->size() > kMaxStrings) return set_problem(key);
    std::vector<std::string> found;
    for (const Json& item : *items) {
      const std::string* text = item.as_string();
      if (text == nullptr) return set_problem(key);
      found.push_back(*text);
    }
    return found;
  }

 private:
  // Absent and null are the same.
  const Json* find(const char* key) const {
    const Json* found = object_.find(key);
    return found == nullptr || found->is_null() ? nullptr : found;
  }

  std::nullopt_t set_problem(const char* key) {
    if (problem_.empty()) problem_ = fmt::format("its '{}' is not valid", key);
    return std::nullopt;
  }

  const Json& object_;
  std::string& problem_;
};

Json format_request(const Request& request) {
  const auto policy = std::find_if(kPolicies.begin(), kPolicies.end(),
                                   [&](const auto& row) { return row.first == request.policy; });
  Json json{{"count", request.count}, {"policy", policy->second}};
  // Leaves out what was not requested: most requests are only a count.
  const auto add = [&json](const char* key, Json value) {
    if (!value.is_null()) json[key] = std::move(value);
  };
  add("memory_bytes", bytes_or_null(request.memory));
  if (request.time) {
    add("time_ms", std::chrono::ceil<std::chrono::milliseconds>(*request.time).count());
  }
  add("gpus", or_null(request.uuids));
  add("name", or_null(request.name));
  add("min_memory_bytes", bytes_or_null(request.min_memory));
  add("max_utilization_pct", or_null(request.max_utilization_pct));
  add("max_memory_utilization_pct", or_null(request.max_memory_utilization_pct));
  if (request.max_processes > 0) add("max_processes", request.max_processes);
  return json;
}

std::optional<Bytes> to_bytes(std::optional<std::uint64_t> count) {
  return count ? std::optional(Bytes{*count}) : std::nullopt;
}

std::optional<unsigned> to_percent(std::optional<std::uint64_t> number) {
  return number ? std::optional(static_cast<unsigned>(*number)) : std::nullopt;
}

Request parse_request(const Json& json, std::string& problem) {
  constexpr std::uint64_t kMaxCount = 1 << 20;
  Request request;
  if (!json.is_object()) {
    problem = "it has no request";
    return request;
  }
  FieldReader fields(json, problem);
  request.count = static_cast<unsigned>(fields.required_number("count", kMaxCount));
  if (request.count == 0) problem = "it requests no GPU";
  const auto policy = fields.text("policy", 16).value_or("spread");
  for (const auto& [value, name] : kPolicies) {
    if (policy == name) request.policy = value;
  }
  request.memory = to_bytes(fields.number("memory_bytes"));
  if (const auto time = fields.number("time_ms", 1ULL << 41)) {
    request.time = std::chrono::milliseconds(*time);
  }
  request.uuids = fields.strings("gpus");
  request.name = fields.text("name", kMaxCommandLength);
  request.min_memory = to_bytes(fields.number("min_memory_bytes"));
  request.max_utilization_pct = to_percent(fields.number("max_utilization_pct", 100));
  request.max_memory_utilization_pct = to_percent(fields.number("max_memory_utilization_pct", 100));
  request.max_processes =
      static_cast<unsigned>(fields.number("max_processes", kMaxCount).value_or(0));
  return request;
}

}  // namespace

std::optional<TimePoint> Record::expected_end() const {
  if (!request.time) return std::nullopt;
  return granted + *request.time;
}

std::string format_record(const Record& record) {
  Json json{{"version", record.version},
            {"id", record.id},
            {"state", record.uuids.empty() ? "waiting" : "holding"},
            {"uid", record.uid},
            {"pid", record.pid},
            {"pid_namespace", record.pid_namespace},
            {"holder", record.holder == HolderKind::job ? "job" : "shell"},
            {"command", record.command.substr(0, kMaxCommandLength)},
            {"label", record.label},
            {"since_ms", to_ms(record.since)},
            {"request", format_request(record.request)}};
  if (!record.job.empty()) json["job"] = record.job.substr(0, kMaxCommandLength);
  if (record.is_profiling_run) json["profiles"] = true;
  if (record.time_is_estimated) json["time_estimated"] = true;
  if (!record.parent_lease.empty()) json["within"] = record.parent_lease;
  if (!record.job_id.empty()) json["job_id"] = record.job_id;
  if (!record.job_host.empty()) json["job_host"] = record.job_host;
  if (!record.directory_id.empty()) json["witness"] = record.directory_id;
  if (record.file_number && record.uuids.empty()) json["order"] = *record.file_number;
  if (!record.uuids.empty()) {
    json["gpus"] = record.uuids;
    json["granted_ms"] = to_ms(record.granted);
    if (record.epoch > 0) json["epoch"] = record.epoch;
    if (record.sampled) json["sampled"] = true;
    if (record.adopted_start) json["adopted_start"] = *record.adopted_start;
  }
  return to_sorted_json(json) + "\n";
}

std::uint64_t hash_request(const Record& record) {
  const std::string text = fmt::format("{} {} {} {}", record.version, record.pid_namespace,
                                       to_ascii_json(format_request(record.request)),
                                       record.is_profiling_run ? record.job : std::string());
  std::uint64_t hash = 14695981039346656037ULL;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

Result<Record> parse_record(std::string_view text) {
  const auto parsed = parse_json(text, kMaxDepth);
  if (!parsed) return fail(ErrorKind::io, fmt::format("it {}", parsed.error().message));
  const Json& json = *parsed;
  if (!json.is_object()) return fail(ErrorKind::io, "it is not a JSON object");
  std::string problem;
  FieldReader fields(json, problem);
  Record record;
  record.version = static_cast<int>(fields.required_number("version", 1 << 20));
  record.id = fields.text("id", 64).value_or("");
  record.uid = static_cast<uid_t>(fields.required_number("uid", UINT32_MAX));
  const std::string state = fields.text("state", 16).value_or("");
  record.uuids = fields.strings("gpus").value_or(std::vector<std::string>{});
  record.directory_id = fields.text("witness", kMaxLabelLength).value_or("");
  if (record.version > kProtocolVersion) {
    record.holds_all_gpus = record.uuids.empty() || !problem.empty();
    return record;
  }
  record.pid = static_cast<pid_t>(fields.required_number("pid", INT32_MAX));
  record.pid_namespace = fields.number("pid_namespace").value_or(0);
  record.holder = fields.text("holder", 16) == "shell" ? HolderKind::shell : HolderKind::job;
  record.command = fields.text("command", kMaxCommandLength * 3).value_or("");
  record.label = fields.text("label", kMaxLabelLength * 3).value_or("");
  record.job = fields.text("job", kMaxCommandLength * 3).value_or("");
  record.is_profiling_run = fields.flag("profiles");
  record.time_is_estimated = fields.flag("time_estimated");
  record.sampled = fields.flag("sampled");
  record.since = from_ms(fields.required_number("since_ms"));
  record.granted = from_ms(fields.number("granted_ms").value_or(0));
  record.parent_lease = fields.text("within", kIdLength).value_or("");
  record.job_id = fields.text("job_id", kIdLength).value_or("");
  if (!is_id(record.job_id)) record.job_id.clear();
  record.job_host = fields.text("job_host", kMaxLabelLength).value_or("");
  record.file_number = fields.number("order");
  record.epoch = fields.number("epoch").value_or(0);
  record.adopted_start = fields.number("adopted_start");
  const Json* request = json.find("request");
  record.request = parse_request(request == nullptr ? Json() : *request, problem);
  if (record.version == 0) problem = "its 'version' is not valid";
  if ((state == "holding") == record.uuids.empty()) problem = "its 'state' and 'gpus' disagree";
  if (!problem.empty()) return fail(ErrorKind::io, problem);
  return record;
}

Record parse_damaged_lease(std::string_view text, std::string problem) {
  const auto json = parse_json(text, kMaxDepth);
  Record record;
  if (json && json->is_object()) {
    std::string ignored;
    record.uuids = FieldReader(*json, ignored).strings("gpus").value_or(std::vector<std::string>{});
  }
  record.holds_all_gpus = record.uuids.empty();
  record.problem = std::move(problem);
  return record;
}

std::string make_id() {
  std::array<unsigned char, kIdLength> bytes{};
  // For so few bytes getrandom() is never short or interrupted, once the kernel's pool is
  // initialized at boot.
  (void)!::getrandom(bytes.data(), bytes.size(), 0);
  std::string id;
  for (const unsigned char byte : bytes) id += kIdLetters[byte % kIdLetters.size()];
  return id;
}

bool is_id(std::string_view text) {
  return text.size() == kIdLength && text.find_first_not_of(kIdLetters) == std::string_view::npos;
}

}  // namespace berth
