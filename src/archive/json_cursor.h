// Reading one JSON text from front to back, without building a tree of it.
//
// A report reads a million lines, and a tree for each would take most of its time. Strict: what it
// takes is JSON (RFC 8259) in valid UTF-8, and nlohmann's parser takes the same (json_cursor_test
// compares them), but for a zero byte, which ends a text for that one and is an error here.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace berth {

// Every function that reads says false where the text is damaged; then there is nothing more to
// read. Strings are views of the text or, if they had escapes, of `decoded`, which must live as
// long as they do.
class JsonCursor {
 public:
  JsonCursor(std::string_view text, std::string& decoded);

  // The first character of the next value, which tells its kind; '\0' at the end.
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

  // Exactly this, if it comes next, character by character; else nothing is read. Inline: most are
  // known when this is compiled, and compared in a step or two.
  [[gnu::always_inline]] bool consume_literal(std::string_view expected) {
    if (static_cast<std::size_t>(end_ - at_) < expected.size() ||
        std::memcmp(at_, expected.data(), expected.size()) != 0) {
      return false;
    }
    at_ += expected.size();
    return true;
  }

  bool read_string(std::string_view& value);
  // Nothing for a number that is negative, no integer, or beyond 64 bits.
  bool read_number(std::optional<std::uint64_t>& value);
  // Any value, however deep.
  bool skip_value();
  // Is this all there is?
  bool at_end() { return peek() == '\0' && at_ == end_; }

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
  bool skip_scalar();

  const char* at_;
  const char* end_;
  std::string& decoded_;
};

}  // namespace berth
