// Strict reading of JSON objects: every key is known, every value has its type and its range.
//
// The first problem wins and is kept; getters then go on with defaults, so that the code that reads
// a description is a plain list of its keys.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/quantity.h"

namespace berth::sim {

using Json = nlohmann::json;

// The text as JSON, or what is wrong with it and where ("at line 3, byte 17: …"). A key that is
// given twice is refused: one of the two would be ignored.
Result<Json> parse_json(std::string_view text);

class FirstProblem {
 public:
  void report(std::string text) {
    if (text_.empty()) text_ = std::move(text);
  }
  bool any() const { return !text_.empty(); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// One object. Keys that nobody asked for are reported when it goes out of scope.
class Fields {
 public:
  // `where` starts each message: "gpus[2]". Neither `json` nor `problem` is owned.
  Fields(const Json& json, std::string where, FirstProblem& problem);
  ~Fields();  // NOLINT(bugprone-exception-escape)
  Fields(const Fields&) = delete;
  Fields& operator=(const Fields&) = delete;

  bool has(const char* key) const { return json_.contains(key); }
  std::optional<std::string> text(const char* key);  // printable, not empty, at most 64 bytes
  std::optional<Bytes> size(const char* key, Bytes low, Bytes high);
  std::optional<std::chrono::nanoseconds> duration(const char* key);
  std::optional<long long> integer(const char* key, long long low, long long high);
  std::optional<double> number(const char* key, double low, double high);
  bool flag(const char* key, bool otherwise);
  const Json* list(const char* key, std::size_t most);  // null if absent or not a list
  const Json* any(const char* key);                     // null if absent

  void report(const char* key, std::string_view what);
  const std::string& where() const { return where_; }
  FirstProblem& problem() { return problem_; }

 private:
  const Json& json_;
  std::string where_;
  FirstProblem& problem_;
  std::set<std::string, std::less<>> known_keys_;
};

}  // namespace berth::sim
