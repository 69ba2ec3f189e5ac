// JSON: the type of a value, the parser and the writers that all of Berth uses.
//
// The type is Berth's own, and not a template: that of a library such as nlohmann's takes seconds
// to compile in each source that includes it. base/json_cursor.h reads large texts without building
// values.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/quantity.h"
#include "base/result.h"

namespace berth {

// A value, copied and moved like a std::string. Objects keep the order in which their members were
// added. They have few members: looking one up takes linear time.
class Json {
 public:
  struct Member;
  using Array = std::vector<Json>;
  using Object = std::vector<Member>;

  Json() : Json(nullptr) {}
  Json(std::nullptr_t);                         // NOLINT(google-explicit-constructor)
  Json(const char* text);                       // NOLINT(google-explicit-constructor)
  Json(std::string_view text);                  // NOLINT(google-explicit-constructor)
  Json(std::string text);                       // NOLINT(google-explicit-constructor)
  Json(double number);                          // NOLINT(google-explicit-constructor)
  Json(const std::vector<std::string>& texts);  // NOLINT(google-explicit-constructor)
  Json(Array items);                            // NOLINT(google-explicit-constructor)
  Json(Object members);                         // NOLINT(google-explicit-constructor)
  // Templates, so that no other type (a pointer above all) becomes a bool or a number.
  template <std::same_as<bool> Bool>
  Json(Bool value) : Json(Flag{value}) {}  // NOLINT(google-explicit-constructor)
  template <std::integral Number>
  requires(!std::same_as<Number, bool> && !std::same_as<Number, char>)
      Json(Number number)  // NOLINT(google-explicit-constructor)
      : Json(Integer{std::cmp_less(number, 0), static_cast<std::uint64_t>(number)}) {}
  // An object: {{"pid", 12}, {"user", "eva"}}. Moves the values out of the list.
  Json(std::initializer_list<Member> members);

  static Json array(std::initializer_list<Json> items = {});

  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(const Json& other);
  Json& operator=(Json&& other) noexcept;
  ~Json();

  bool is_null() const;
  bool is_object() const { return as_object() != nullptr; }
  // Null if the value has another type.
  const std::string* as_string() const;
  const Array* as_array() const;
  const Object* as_object() const;
  // nullopt if the value has another type, or does not fit.
  std::optional<bool> as_bool() const;
  std::optional<std::uint64_t> as_unsigned() const;  // an integer that is not negative
  std::optional<std::int64_t> as_integer() const;
  std::optional<double> as_number() const;  // any number; a large integer is rounded

  // Null if this is not an object, or has no such member. If a parsed text repeats a key, the last
  // member with it counts.
  const Json* find(std::string_view key) const;

  // The number of items or members; 0 for other types.
  std::size_t size() const;

  // For building. Null becomes an object or array; any other type is a programmer's error.
  Json& operator[](std::string_view key);  // adds the member if it is missing
  void push_back(Json item);
  void append_members(Json object);

 private:
  // Constructors from these are not templates.
  struct Flag {
    bool value;
  };
  struct Integer {
    bool is_negative;
    std::uint64_t bits;
  };
  explicit Json(Flag flag);
  explicit Json(Integer integer);

  friend class JsonWriter;

  std::variant<std::nullptr_t, bool, std::uint64_t, std::int64_t, double, std::string, Array,
               Object>
      value_;
};

struct Json::Member {
  Member(std::string_view key_text, Json any) : key(key_text), value(std::move(any)) {}

  std::string key;
  mutable Json value;  // the elements of an initializer list are const, but are moved out of it
};

// Deeper texts are not parsed, so that no function that walks through a value needs a large stack.
constexpr int kMaxJsonDepth = 64;

// The text must be one value of JSON (RFC 8259) in UTF-8. The message of the error has the name of
// the text as its subject: "is not valid JSON at line 3, byte 17: a syntax error".
Result<Json> parse_json(std::string_view text, int max_depth = kMaxJsonDepth);

constexpr int kOneLine = -1;  // instead of an indent

// The text of `json`. Bytes that are not UTF-8 are replaced. ASCII text shows on every terminal and
// survives every log; UTF-8 text is shorter.
std::string to_ascii_json(const Json& json, int indent = kOneLine);
std::string to_utf8_json(const Json& json, int indent = kOneLine);
// The ASCII text on one line, with the keys of each object in alphabetical order.
std::string to_sorted_json(const Json& json);

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

// A job type without the parts of the command that it may contain: "python #3f786850e387550f". A
// name without them, such as one that a user has chosen, is not changed.
std::string hide_command_in_job(std::string_view job);

// Null if there is no job type. Unless the user's commands may be shown, it is shortened by
// hide_command_in_job().
inline Json job_or_null(std::string_view job, const std::string& user,
                        const CommandVisibility& visibility) {
  if (job.empty()) return nullptr;
  return !visibility || *visibility == user ? Json(job) : Json(hide_command_in_job(job));
}

}  // namespace berth
