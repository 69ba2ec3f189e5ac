// Reads JSON objects strictly; see json_fields.h.
#include "sim/json_fields.h"

#include <algorithm>
#include <fmt/format.h>
#include <vector>

#include "base/text.h"

namespace berth::sim {
namespace {

constexpr std::size_t kMaxTextLength = 64;  // NVML's limit for a card's name
constexpr int kMaxDepth = 16;               // a description needs four levels

struct NestingTooDeep {};

std::string format_position(std::string_view text, std::size_t byte) {
  const auto before = text.substr(0, std::min(byte, text.size()));
  const auto lines = std::count(before.begin(), before.end(), '\n');
  return fmt::format("at line {}, byte {}", lines + 1, byte);
}

}  // namespace

std::string without_remedy(const std::string& message) {
  return message.substr(0, message.find("; ", message.rfind('\'')));  // not inside the quoted value
}

Result<Json> parse_json(std::string_view text) {
  if (text.find('\0') != std::string_view::npos) {
    return fail(ErrorKind::usage, "is not valid JSON: it contains a NUL byte");
  }
  std::vector<std::set<std::string>> open;  // the keys so far of each object that is open
  std::string duplicate_key;
  const auto check_event = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth > kMaxDepth) throw NestingTooDeep{};
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto& key = value.get_ref<const std::string&>();
      if (!open.back().insert(key).second && duplicate_key.empty()) duplicate_key = key;
    }
    return true;
  };
  try {
    Json json = Json::parse(text, check_event);
    if (!duplicate_key.empty()) {
      return fail(ErrorKind::usage, fmt::format("has the key {} twice", in_quotes(duplicate_key)));
    }
    return json;
  } catch (const Json::parse_error& error) {
    const bool cut = error.byte > text.size();
    return fail(ErrorKind::usage,
                fmt::format("is not valid JSON {}: {}", format_position(text, error.byte),
                            cut ? "the text ends too early" : "a syntax error"));
  } catch (const NestingTooDeep&) {
    return fail(ErrorKind::usage, "is nested too deeply");
  } catch (const Json::exception& error) {
    return fail(ErrorKind::usage, fmt::format("is not usable JSON: {}", printable(error.what())));
  }
}

Fields::Fields(const Json& json, std::string where, FirstProblem& problem)
    : json_(json), where_(std::move(where)), problem_(problem) {
  if (!json_.is_object()) problem_.report(fmt::format("{} must be an object {{...}}", where_));
}

// If the message cannot be allocated, the program ends here: there is no better way to fail.
Fields::~Fields() {  // NOLINT(bugprone-exception-escape)
  if (!json_.is_object()) return;
  for (const auto& [key, value] : json_.items()) {
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
  if (!json_.is_object()) return nullptr;
  const auto found = json_.find(key);
  return found == json_.end() ? nullptr : &*found;
}

std::optional<std::string> Fields::text(const char* key) {
  const Json* value = any(key);
  if (value == nullptr) return {};
  if (!value->is_string()) {
    report(key, "must be text");
    return {};
  }
  const auto& text = value->get_ref<const std::string&>();
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
  if (!value->is_string()) {
    report(key, "must be a size as text, such as \"24GiB\"");
    return {};
  }
  const auto size = parse_size(value->get_ref<const std::string&>());
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
  if (!value->is_string()) {
    report(key, "must be a duration as text, such as \"10s\"");
    return {};
  }
  const auto time = parse_duration(value->get_ref<const std::string&>());
  if (!time) {
    report(key, fmt::format("is invalid: {}", without_remedy(time.error().message)));
    return {};
  }
  return *time;
}

std::optional<long long> Fields::integer(const char* key, long long low, long long high) {
  const Json* value = any(key);
  if (value == nullptr) return {};
  // Unsigned numbers are compared as such: a number above LLONG_MAX would wrap into the range.
  const bool fits = value->is_number_unsigned()
                        ? value->get<unsigned long long>() <= static_cast<unsigned long long>(high)
                        : value->is_number_integer();
  if (!fits || value->get<long long>() < low || value->get<long long>() > high) {
    report(key, fmt::format("must be a whole number from {} to {}", low, high));
    return {};
  }
  return value->get<long long>();
}

std::optional<double> Fields::number(const char* key, double low, double high) {
  const Json* value = any(key);
  if (value == nullptr) return {};
  if (!value->is_number() || value->get<double>() < low || value->get<double>() > high) {
    report(key, fmt::format("must be a number from {} to {}", low, high));
    return {};
  }
  return value->get<double>();
}

bool Fields::flag(const char* key, bool otherwise) {
  const Json* value = any(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) {
    report(key, "must be true or false");
    return otherwise;
  }
  return value->get<bool>();
}

const Json* Fields::list(const char* key, std::size_t most) {
  const Json* value = any(key);
  if (value == nullptr) return nullptr;
  if (!value->is_array() || value->size() > most) {
    report(key, fmt::format("must be a list [...] of at most {} entries", most));
    return nullptr;
  }
  return value;
}

}  // namespace berth::sim
