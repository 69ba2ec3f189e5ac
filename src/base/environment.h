// Environment variables.
#pragma once

#include <cstdlib>
#include <optional>
#include <string_view>

namespace berth {

// The variable's value, which lives until the variable is changed; nothing if it is not set.
inline std::optional<std::string_view> get_env(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return value;
}

// The same where a variable that is empty means what an unset one means.
inline std::string_view get_env_or_empty(const char* name) {
  return get_env(name).value_or("");
}

}  // namespace berth
