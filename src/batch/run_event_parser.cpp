// Reading of events; see run_event_parser.h.
#include "batch/run_event_parser.h"

#include <nlohmann/json.hpp>
#include <optional>

namespace berth::batch {
namespace {

using Json = nlohmann::json;

std::string string_field(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::optional<RunEvent> parse_line(std::string_view line) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  const std::string event = string_field(json, "event");
  if (event == "waiting") return RunEvent{RunEvent::Kind::waiting, string_field(json, "reason")};
  if (event == "notice") return RunEvent{RunEvent::Kind::notice, string_field(json, "text")};
  if (event == "granted") {
    return RunEvent{
        RunEvent::Kind::granted, {}, string_field(json, "lease"), string_field(json, "gpus")};
  }
  if (event == "ended") {
    const auto oom = json.find("out_of_memory");
    return RunEvent{RunEvent::Kind::ended,
                    {},
                    {},
                    {},
                    oom != json.end() && oom->is_boolean() && oom->get<bool>()};
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
