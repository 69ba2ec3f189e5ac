// Reads fields of parsed JSON objects; a field that is missing or has another type counts as empty.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace berth {

// The JSON type for reading. The type for writing (base/json.h) keeps the order of keys, and needs
// quadratic time to parse an object with many of them, which any user can write.
using ParsedJson = nlohmann::json;

// The value is_discarded() if the text is not valid JSON.
ParsedJson parse_json(std::string_view text);

// As the functions of base/json.h, with the keys in alphabetical order.
std::string to_ascii_json(const ParsedJson& json, int indent = -1);

// Whether JSON can hold the text unchanged.
bool is_utf8(std::string_view text);

inline std::string string_field(const ParsedJson& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

inline bool bool_field(const ParsedJson& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_boolean() && found->get<bool>();
}

// nullopt: missing, negative, not an integer, or too large for the type.
template <class Number = std::uint64_t>
std::optional<Number> number_field(const ParsedJson& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_number_unsigned()) return std::nullopt;
  const auto number = found->get<std::uint64_t>();
  return std::in_range<Number>(number) ? std::optional(static_cast<Number>(number)) : std::nullopt;
}

}  // namespace berth
