// Text: escaping for terminals, width and truncation, joining, and parsing integers.
//
// All text that comes from users, drivers or files must pass through printable() before it is
// written to a terminal: names, commands and labels can contain escape sequences, line breaks,
// bidirectional controls or bytes that are not UTF-8.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace berth {

enum class Charset { ascii, utf8 };

// `text` with a visible escape (\n, \x1b, \u202e) in place of each control character, invisible or
// direction-changing code point and invalid byte; with Charset::ascii, of each character that is
// not ASCII, too.
std::string printable(std::string_view text, Charset charset = Charset::utf8);

// printable() in single quotes, truncated to 80 columns. For error messages.
std::string in_quotes(std::string_view text);

// The elements of `range` with `separator` between them. `to_text` converts an element to text: a
// function or a pointer to a member, such as &Record::id.
template <class Range, class ToText = std::identity>
std::string join_text(const Range& range, std::string_view separator, ToText to_text = {}) {
  std::string text;
  bool is_first = true;
  for (const auto& element : range) {
    if (!is_first) text += separator;
    is_first = false;
    text += std::invoke(to_text, element);
  }
  return text;
}

// "GPU 0" or "GPUs 0,2", for sentences. `indices` is separated by commas.
std::string gpu_list(std::string_view indices);

// Converts the letters A to Z only; all other bytes stay as they are.
std::string lower_case(std::string_view text);

// The number of bytes of the first code point of `text`, which is not empty; 0 if it is not UTF-8.
std::size_t utf8_length(std::string_view text);

bool is_utf8(std::string_view text);

void append_utf8(std::string& out, std::uint32_t code_point);

// The width of `text` on a terminal, in columns. Here and below, `text` has passed printable().
std::size_t display_width(std::string_view text);

// `text`, cut off at the end with a mark ("…", in ASCII "...") if it is wider than `columns`.
std::string truncate_text(std::string_view text, std::size_t columns,
                          Charset charset = Charset::utf8);

// The same, but the middle is left out: for names that differ at the end.
std::string truncate_middle(std::string_view text, std::size_t columns,
                            Charset charset = Charset::utf8);

// nullopt unless all of `text` is a decimal integer that fits into the type.
template <class Integer>
std::optional<Integer> parse_integer(std::string_view text) {
  Integer value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, value);
  if (problem != std::errc{} || rest != end) return std::nullopt;
  return value;
}

}  // namespace berth
