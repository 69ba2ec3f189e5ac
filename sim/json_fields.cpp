// Reads JSON objects strictly; see json_fields.h.
#include "sim/json_fields.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/text.h"

namespace berth::sim {
namespace {

constexpr std::size_t kMaxTextLength = 64;  // NVML's limit for a card's name
constexpr int kMaxDepth = 16;               // a description needs four levels

// The first key that an object has twice; nullptr: none.
const std::string* find_repeated_key(const Json& json) {
  std::set<std::string_view> keys;
  if (const Json::Object* members = json.as_object()) {
    for (const auto& [key, value] : *members) {
      if (!keys.insert(key).second) return &key;
      if (const std::string* inner = find_repeated_key(value)) return inner;
    }
  } else if (const Json::Array* items = json.as_array()) {
    for (const Json& item : *items) {
      if (const std::string* inner = find_repeated_key(item)) return inner;
    }
  }
  return nullptr;
}

}  // namespace

std::string without_remedy(const std::string& message) {
  return message.substr(0, message.find("; ", message.rfind('\'')));  // not inside the quoted value
}

Result<Json> parse_description(std::string_view text) {
  auto json = parse_json(text, kMaxDepth);
  if (!json) return fail(ErrorKind::usage, json.error().message);
  if (const std::string* key = find_repeated_key(*json)) {
    return fail(ErrorKind::usage, fmt::format("has the key {} twice", in_quotes(*key)));
  }
  return json;
}

Fields::Fields(const Json& json, std::string where, FirstProblem& problem)
    : json_(json), where_(std::move(where)), problem_(problem) {
  if (!json_.is_object()) problem_.report(fmt::format("{} must be an object {{...}}", where_));
}

// If the message cannot be allocated, the program ends here: there is no better way to fail.
Fields::~Fields() {  // NOLINT(bugprone-exception-escape)
  if (!json_.is_object()) return;
  for (const auto& [key, value] : *json_.as_object()) {
    if (!known_keys_.contains(key)) {
      problem_.report(fmt::format("{} has the unknown key {}", where_, in_quotes(key)));
    }
  }
}

void Fields::report(const char* key, std::string_view what) {
  problem_.report(fmt::format("{}: \"{}\" {}", where_, key, what));
}

const Json* Fields::any(const char* key) {
  known_keys_.insert(key);
  return json_.find(key);
}

std::optional<std::string> Fields::text(const char* key) {
  const Json* value = any(key);
  if (value == nullptr) return {};
  if (value->as_string() == nullptr) {
    report(key, "must be text");
    return {};
  }
  const std::string& text = *value->as_string();
  if (text.empty() || text.size() >= kMaxTextLength) {
    report(key, fmt::format("must have 1 to {} bytes", kMaxTextLength - 1));
    return {};
  }
  if (printable(text) != text) {
    report(key, fmt::format("has control or invisible characters: {}", in_quotes(text)));
    return {};
  }
  return text;
}

std::optional<Bytes> Fields::size(const char* key, Bytes low, Bytes high) {
  const Json* value = any(key);
  if (value == nullptr) return {};
  if (value->as_string() == nullptr) {
    report(key, "must be a size as text, such as \"24GiB\"");
    return {};
  }
  const auto size = parse_size(*value->as_string());
  if (!size) {
    report(key, fmt::format("is invalid: {}", without_remedy(size.error().message)));
    return {};
  }
  if (*size < low || *size > high) {
    report(key, fmt::format("must be {} to {}", format_size(low), format_size(high)));
    return {};
  }
  return *size;
}

std::optional<std::chrono::nanoseconds> Fields::duration(const char* key) {
  const Json* value = any(key);
  if (value == nullptr) return {};
  if (value->as_string() == nullptr) {
    report(key, "must be a duration as text, such as \"10s\"");
    return {};
  }
  const auto time = parse_duration(*value->as_string());
  if (!time) {
    report(key, fmt::format("is invalid: {}", without_remedy(time.error().message)));
    return {};
  }
  return *time;
}

std::optional<long long> Fields::integer(const char* key, long long low, long long high) {
  const Json* value = any(key);
  if (value == nullptr) return {};
  const auto number = value->as_integer();
  if (!number || *number < low || *number > high) {
    report(key, fmt::format("must be a whole number from {} to {}", low, high));
    return {};
  }
  return *number;
}

std::optional<double> Fields::number(const char* key, double low, double high) {
  const Json* value = any(key);
  if (value == nullptr) return {};
  const auto number = value->as_number();
  if (!number || *number < low || *number > high) {
    report(key, fmt::format("must be a number from {} to {}", low, high));
    return {};
  }
  return number;
}

bool Fields::flag(const char* key, bool otherwise) {
  const Json* value = any(key);
  if (value == nullptr) return otherwise;
  const auto flag = value->as_bool();
  if (!flag) report(key, "must be true or false");
  return flag.value_or(otherwise);
}

const Json::Array* Fields::list(const char* key, std::size_t most) {
  const Json* value = any(key);
  if (value == nullptr) return nullptr;
  const Json::Array* items = value->as_array();
  if (items == nullptr || items->size() > most) {
    report(key, fmt::format("must be a list [...] of at most {} entries", most));
    return nullptr;
  }
  return items;
}

}  // namespace berth::sim
