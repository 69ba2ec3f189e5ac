// Reads environment variables.
#pragma once

#include <cstdlib>
#include <optional>
#include <string_view>

namespace berth {

// The variable's value, valid until the variable is changed; nullopt if it is not set.
inline std::optional<std::string_view> get_env(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return value;
}

// The same, for variables whose empty value means the same as unset.
inline std::string_view get_env_or_empty(const char* name) {
  return get_env(name).value_or("");
}

}  // namespace berth
