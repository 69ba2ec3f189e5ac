// Parses lines of JSON into events; see run_event_parser.h.
#include "batch/run_event_parser.h"

#include <chrono>
#include <cstdint>
#include <optional>

#include "base/json_fields.h"

namespace berth::batch {
namespace {

std::optional<RunEvent> parse_line(std::string_view line) {
  const Json json = parse_json(line).value_or(Json());
  if (!json.is_object()) return std::nullopt;
  const std::string event = string_field(json, "event");
  if (event == "waiting") {
    RunEvent waiting{RunEvent::Kind::waiting, string_field(json, "reason")};
    if (const auto starts = number_field<std::uint32_t>(json, "starts_s"))
      waiting.starts = TimePoint(std::chrono::seconds(*starts));
    return waiting;
  }
  if (event == "notice") return RunEvent{RunEvent::Kind::notice, string_field(json, "text")};
  if (event == "granted") {
    return RunEvent{RunEvent::Kind::granted, string_field(json, "reserved"),
                    string_field(json, "lease"), string_field(json, "gpus")};
  }
  if (event == "ended") {
    return RunEvent{RunEvent::Kind::ended, {}, {}, {}, bool_field(json, "out_of_memory")};
  }
  return std::nullopt;
}

}  // namespace

std::vector<RunEvent> RunEventParser::parse_bytes(std::string_view bytes) {
  buffer_ += bytes;
  std::vector<RunEvent> events;
  std::size_t begin = 0;
  for (auto end = buffer_.find('\n'); end != std::string::npos; end = buffer_.find('\n', begin)) {
    if (auto event = parse_line(std::string_view(buffer_).substr(begin, end - begin))) {
      events.push_back(std::move(*event));
    }
    begin = end + 1;
  }
  buffer_.erase(0, begin);
  return events;
}

}  // namespace berth::batch
