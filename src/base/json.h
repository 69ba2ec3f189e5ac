// What every JSON that berth prints has in common.
#pragma once

#include <chrono>
#include <fmt/chrono.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/quantity.h"
#include "base/time.h"

namespace berth {

using Json = nlohmann::ordered_json;

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

inline Json mib_or_null(const std::optional<Bytes>& size) {
  return size ? Json(to_mib(*size)) : Json(nullptr);
}

// Whose command lines may be shown; nothing: everybody's. Where a host hides processes from other
// users, a page must not show what `ps` would not.
using CommandVisibility = std::optional<std::string>;

inline Json command_or_null(const std::string& command, const std::string& user,
                            const CommandVisibility& visibility) {
  return !visibility || *visibility == user ? Json(command) : Json(nullptr);
}

// "2026-11-15T23:11:51Z".
inline std::string format_iso_time(TimePoint time) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(
                         std::chrono::time_point_cast<std::chrono::system_clock::duration>(time))));
}

}  // namespace berth
