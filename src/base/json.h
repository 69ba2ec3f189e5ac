// The JSON type and the conversions that all JSON output of Berth uses.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/quantity.h"

namespace berth {

using Json = nlohmann::ordered_json;

constexpr int kOneLine = -1;  // instead of an indent

// The text of `json`. Bytes that are not UTF-8 are replaced. ASCII text shows on every terminal and
// survives every log; UTF-8 text is shorter.
std::string to_ascii_json(const Json& json, int indent = kOneLine);
std::string to_utf8_json(const Json& json, int indent = kOneLine);

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

inline Json mib_or_null(const std::optional<Bytes>& size) {
  return size ? Json(to_mib(*size)) : Json(nullptr);
}

// The user whose command lines may be shown; nullopt: those of all users. On a host that hides
// processes from other users, Berth must not show command lines that `ps` hides.
using CommandVisibility = std::optional<std::string>;

inline Json command_or_null(const std::string& command, const std::string& user,
                            const CommandVisibility& visibility) {
  return !visibility || *visibility == user ? Json(command) : Json(nullptr);
}

}  // namespace berth
