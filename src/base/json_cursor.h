// A JSON parser that reads a text from front to back without building a tree.
//
// A report reads a million lines, and building a tree for each would take most of its time. The
// parser is strict: it accepts JSON (RFC 8259) in valid UTF-8. It accepts the same texts as
// nlohmann's parser (json_cursor_test compares them), except for a zero byte: that ends a text for
// nlohmann, and is an error here. parse_json() of base/json.h uses it, too.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace berth {

// Functions that read return false if the text is not valid; then the caller must stop reading.
// Strings are views of the text or, if they have escapes, of `decoded`. Both must outlive them.
class JsonCursor {
 public:
  JsonCursor(std::string_view text, std::string& decoded);

  // The first character of the next value, which shows its type; '\0' at the end.
  char peek() {
    while (at_ != end_ && is_blank(*at_)) ++at_;
    return at_ == end_ ? '\0' : *at_;
  }

  // `read_item(key)` must read the value.
  template <class ReadItem>
  bool read_object(ReadItem&& read_item) {
    if (!consume('{')) return false;
    if (consume('}')) return true;
    do {
      std::string_view key;
      if (!read_string(key) || !consume(':') || !read_item(key)) return false;
    } while (consume(','));
    return consume('}');
  }

  // `read_item()` must read the item.
  template <class ReadItem>
  bool read_array(ReadItem&& read_item) {
    if (!consume('[')) return false;
    if (consume(']')) return true;
    do {
      if (!read_item()) return false;
    } while (consume(','));
    return consume(']');
  }

  // Reads exactly `expected` if the text continues with it; else reads nothing and returns false.
  // Always inline: most callers pass a constant, which the compiler compares in one or two steps.
  [[gnu::always_inline]] bool consume_literal(std::string_view expected) {
    if (static_cast<std::size_t>(end_ - at_) < expected.size() ||
        std::memcmp(at_, expected.data(), expected.size()) != 0) {
      return false;
    }
    at_ += expected.size();
    return true;
  }

  bool read_string(std::string_view& value);
  // nullopt for a number that is negative, not an integer, or larger than 64 bits.
  bool read_number(std::optional<std::uint64_t>& value);
  // Skips a value of any type and any depth of nesting.
  bool skip_value();
  // Does only white space follow?
  bool at_end() { return peek() == '\0' && at_ == end_; }
  // The next byte; after an error, about where it is.
  const char* position() const { return at_; }

 private:
  static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

  bool consume(char expected) {
    if (peek() != expected || at_ == end_) return false;
    ++at_;
    return true;
  }
  bool skip_digits();
  bool finish_number(const char* begin, std::optional<std::uint64_t>& value);
  bool read_escaped_string(const char* begin, std::string_view& value);
  bool read_escape();
  bool read_code_unit(std::uint32_t& value);
  bool skip_word(std::string_view word);
  bool skip_scalar();

  const char* at_;
  const char* end_;
  std::string& decoded_;
};

}  // namespace berth
