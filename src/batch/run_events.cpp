// Reading of events; see run_events.h.
#include "batch/run_events.h"

#include <nlohmann/json.hpp>
#include <optional>

namespace berth::batch {
namespace {

using Json = nlohmann::json;

std::string text_of(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::optional<RunEvent> parse(std::string_view line) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  const std::string event = text_of(json, "event");
  if (event == "waiting") return RunEvent{RunEvent::Kind::waiting, text_of(json, "reason")};
  if (event == "notice") return RunEvent{RunEvent::Kind::notice, text_of(json, "text")};
  if (event == "granted") {
    return RunEvent{RunEvent::Kind::granted, {}, text_of(json, "lease"), text_of(json, "gpus")};
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

std::vector<RunEvent> RunEvents::take(std::string_view bytes) {
  rest_ += bytes;
  std::vector<RunEvent> events;
  std::size_t begin = 0;
  for (auto end = rest_.find('\n'); end != std::string::npos; end = rest_.find('\n', begin)) {
    if (auto event = parse(std::string_view(rest_).substr(begin, end - begin))) {
      events.push_back(std::move(*event));
    }
    begin = end + 1;
  }
  rest_.erase(0, begin);
  return events;
}

}  // namespace berth::batch
