// Reads fields of parsed JSON objects; a field that is missing or has another type counts as empty.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"

namespace berth {

inline std::string string_field(const Json& json, std::string_view name) {
  const Json* const value = json.find(name);
  const std::string* const text = value == nullptr ? nullptr : value->as_string();
  return text == nullptr ? std::string() : *text;
}

inline bool bool_field(const Json& json, std::string_view name) {
  const Json* const value = json.find(name);
  return value != nullptr && value->as_bool().value_or(false);
}

// nullopt: missing, negative, not an integer, or too large for the type.
template <class Number = std::uint64_t>
std::optional<Number> number_field(const Json& json, std::string_view name) {
  const Json* const value = json.find(name);
  const auto number = value == nullptr ? std::nullopt : value->as_unsigned();
  if (!number || !std::in_range<Number>(*number)) return std::nullopt;
  return static_cast<Number>(*number);
}

// Null: missing, or not an array.
inline const Json::Array* array_field(const Json& json, std::string_view name) {
  const Json* const value = json.find(name);
  return value == nullptr ? nullptr : value->as_array();
}

}  // namespace berth
