// Fuzzes the parser of JSON, and compares what it read with what nlohmann's parser reads.
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "fuzz/fuzz.h"

namespace berth {

void fuzz(std::string_view input) {
  const auto json = parse_json(input);
  if (!json) {
    const bool differs = input.find('\0') != std::string_view::npos ||
                         json.error().message == "is nested too deeply";
    check(differs || !nlohmann::json::accept(input), "valid JSON is accepted");
    return;
  }
  const std::string written = to_sorted_json(*json);
  const auto again = parse_json(written);
  check(again && to_sorted_json(*again) == written, "what was read can be written and read again");
  const auto reference = nlohmann::json::parse(input, nullptr, false);
  check(!reference.is_discarded(), "an accepted text is JSON");
  check(nlohmann::json::parse(to_utf8_json(*json)) == reference, "every value is kept");
}

}  // namespace berth
