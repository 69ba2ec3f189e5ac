// Reads JSON objects strictly: every key must be known, and every value has a type and a range.
//
// Only the first problem is kept. The getters then return defaults, so that the code that reads a
// description is a plain list of its keys.
#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/quantity.h"

namespace berth::sim {

// Parses the text. A repeated key is an error, because one of the two values would be ignored.
Result<Json> parse_description(std::string_view text);

// An error of parse_size() or parse_duration() without its remedy: the caller has another one.
std::string without_remedy(const std::string& message);

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

// One object. The destructor reports the keys that were not read.
class Fields {
 public:
  // `where` begins each message: "gpus[2]". `json` and `problem` must outlive this object.
  Fields(const Json& json, std::string where, FirstProblem& problem);
  ~Fields();  // NOLINT(bugprone-exception-escape)
  Fields(const Fields&) = delete;
  Fields& operator=(const Fields&) = delete;

  bool has(const char* key) const { return json_.find(key) != nullptr; }
  std::optional<std::string> text(const char* key);  // printable, not empty, at most 64 bytes
  std::optional<Bytes> size(const char* key, Bytes low, Bytes high);
  std::optional<std::chrono::nanoseconds> duration(const char* key);
  std::optional<long long> integer(const char* key, long long low, long long high);
  std::optional<double> number(const char* key, double low, double high);
  bool flag(const char* key, bool otherwise);
  const Json::Array* list(const char* key, std::size_t most);  // nullptr: absent or not a list
  const Json* any(const char* key);                            // nullptr: absent

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
