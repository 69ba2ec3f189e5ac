// Reads fields of parsed JSON objects; a field that is missing or has another type counts as empty.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

namespace berth {

// The JSON type for reading. The type for writing (base/json.h) keeps the order of keys, and needs
// quadratic time to parse an object with many of them, which any user can write.
using ParsedJson = nlohmann::json;

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
