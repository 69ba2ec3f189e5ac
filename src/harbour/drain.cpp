// Formats and parses drains as JSON; see drain.h.
#include "harbour/drain.h"

#include <chrono>

#include "base/json_fields.h"
#include "harbour/record.h"

namespace berth {

std::string format_drain(const Drain& drain) {
  const auto since =
      std::chrono::floor<std::chrono::milliseconds>(drain.since.time_since_epoch()).count();
  const Json json{{"version", kProtocolVersion},
                  {"gpu", drain.uuid},
                  {"uid", drain.uid},
                  {"reason", drain.reason},
                  {"since_ms", since}};
  return to_sorted_json(json) + "\n";
}

Result<Drain> parse_drain(std::string_view text) {
  const Json json = parse_json(text).value_or(Json());
  const Json* gpu = json.find("gpu");
  if (gpu == nullptr || gpu->as_string() == nullptr) {
    return fail(ErrorKind::io, "it does not name a GPU");
  }
  Drain drain;
  drain.uuid = *gpu->as_string();
  drain.reason = string_field(json, "reason");
  if (const auto since = number_field(json, "since_ms")) {
    constexpr std::uint64_t kMaxTimeMs = 4'000'000'000'000;  // the year 2096, as in a record
    drain.since = TimePoint(std::chrono::milliseconds(std::min(*since, kMaxTimeMs)));
  }
  return drain;
}

}  // namespace berth
