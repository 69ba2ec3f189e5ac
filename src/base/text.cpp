// Escapes, measures and truncates text for terminals; see text.h.
#include "base/text.h"

#include <cstdint>
#include <fmt/format.h>
#include <iterator>

namespace berth {
namespace {

constexpr std::size_t kMaxQuotedColumns = 80;
constexpr char32_t kInvalid = 0xFFFFFFFF;

struct CodePoint {
  char32_t value;      // kInvalid if the bytes are not UTF-8
  std::size_t length;  // bytes; 1 for an invalid one
};

// Decodes the first code point of a text that is not empty. Overlong forms, surrogates and values
// beyond Unicode are invalid: they are used to smuggle control characters past a filter.
CodePoint decode_code_point(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {first, 1};
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return {kInvalid, 1};
  char32_t value = first & (0xFFU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {kInvalid, 1};
    value = (value << 6) | (byte(i) & 0x3FU);
  }
  const bool overlong = (length == 3 && value < 0x800) || (length == 4 && value < 0x10000);
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (overlong || surrogate || value > 0x10FFFF) return {kInvalid, 1};
  return {value, length};
}

bool is_between(char32_t value, char32_t low, char32_t high) {
  return value >= low && value <= high;
}

// Controls, and code points that are invisible or change how their neighbours are shown.
bool is_deceptive(char32_t c) {
  return c < 0x20 || is_between(c, 0x7F, 0x9F) || c == 0xAD || c == 0x61C || c == 0x180E ||
         is_between(c, 0x200B, 0x200F) || is_between(c, 0x2028, 0x202E) ||
         is_between(c, 0x2060, 0x206F) || is_between(c, 0xFE00, 0xFE0F) || c == 0xFEFF ||
         is_between(c, 0xFFF0, 0xFFFB) || is_between(c, 0xE000, 0xF8FF) ||
         is_between(c, 0xE0000, 0x10FFFF);
}

bool is_combining(char32_t c) {
  return is_between(c, 0x300, 0x36F) || is_between(c, 0x1AB0, 0x1AFF) ||
         is_between(c, 0x1DC0, 0x1DFF) || is_between(c, 0x20D0, 0x20FF) ||
         is_between(c, 0xFE20, 0xFE2F);
}

// East Asian wide characters and emoji, which current terminals draw two columns wide.
bool is_wide(char32_t c) {
  return is_between(c, 0x1100, 0x115F) || is_between(c, 0x2E80, 0x303E) ||
         is_between(c, 0x3041, 0xA4CF) || is_between(c, 0xAC00, 0xD7A3) ||
         is_between(c, 0xF900, 0xFAFF) || is_between(c, 0xFE30, 0xFE6F) ||
         is_between(c, 0xFF00, 0xFF60) || is_between(c, 0xFFE0, 0xFFE6) ||
         is_between(c, 0x1F300, 0x1FAFF) || is_between(c, 0x20000, 0x3FFFD);
}

std::size_t code_point_width(char32_t c) {
  if (is_combining(c)) return 0;
  return is_wide(c) ? 2 : 1;
}

void append_escape(std::string& out, char32_t c, std::string_view bytes) {
  auto to = std::back_inserter(out);
  if (c == '\n') {
    out += "\\n";
  } else if (c == '\t') {
    out += "\\t";
  } else if (c == '\r') {
    out += "\\r";
  } else if (c == kInvalid || c < 0x80) {
    fmt::format_to(to, "\\x{:02x}", static_cast<unsigned char>(bytes.front()));
  } else if (c > 0xFFFF) {
    fmt::format_to(to, "\\U{:08x}", static_cast<std::uint32_t>(c));
  } else {
    fmt::format_to(to, "\\u{:04x}", static_cast<std::uint32_t>(c));
  }
}

// The mark that replaces omitted text.
struct Ellipsis {
  std::string_view text;
  std::size_t width;
};

Ellipsis ellipsis_for(Charset charset) {
  return charset == Charset::utf8 ? Ellipsis{"\u2026", 1} : Ellipsis{"...", 3};
}

// The longest prefix of `text` that is at most `columns` wide.
std::string_view prefix_of_width(std::string_view text, std::size_t columns) {
  std::size_t width = 0;
  std::size_t bytes = 0;
  while (bytes < text.size()) {
    const CodePoint c = decode_code_point(text.substr(bytes));
    width += code_point_width(c.value);
    if (width > columns) break;
    bytes += c.length;
  }
  return text.substr(0, bytes);
}

}  // namespace

std::string printable(std::string_view text, Charset charset) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint c = decode_code_point(text);
    const auto bytes = text.substr(0, c.length);
    const bool needs_ascii_escape = charset == Charset::ascii && c.value >= 0x80;
    if (c.value == kInvalid || is_deceptive(c.value) || needs_ascii_escape) {
      append_escape(out, c.value, bytes);
    } else {
      out += bytes;
    }
    text.remove_prefix(c.length);
  }
  return out;
}

std::string in_quotes(std::string_view text) {
  // Truncate before escaping: a user may pass 100 MB where a name is expected.
  const auto start = text.substr(0, 4 * kMaxQuotedColumns);
  return fmt::format("'{}'", truncate_text(printable(start), kMaxQuotedColumns, Charset::ascii));
}

std::string gpu_list(std::string_view indices) {
  const bool is_single = indices.find(',') == std::string_view::npos;
  return fmt::format("{} {}", is_single ? "GPU" : "GPUs", indices);
}

std::string lower_case(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

std::size_t utf8_length(std::string_view text) {
  const CodePoint c = decode_code_point(text);
  return c.value == kInvalid ? 0 : c.length;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

void append_utf8(std::string& out, std::uint32_t code_point) {
  const auto byte = [&](std::uint32_t value) { out += static_cast<char>(value); };
  if (code_point < 0x80) {
    byte(code_point);
  } else if (code_point < 0x800) {
    byte(0xC0 | (code_point >> 6));
    byte(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    byte(0xE0 | (code_point >> 12));
    byte(0x80 | ((code_point >> 6) & 0x3F));
    byte(0x80 | (code_point & 0x3F));
  } else {
    byte(0xF0 | (code_point >> 18));
    byte(0x80 | ((code_point >> 12) & 0x3F));
    byte(0x80 | ((code_point >> 6) & 0x3F));
    byte(0x80 | (code_point & 0x3F));
  }
}

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  while (!text.empty()) {
    const CodePoint c = decode_code_point(text);
    width += code_point_width(c.value);
    text.remove_prefix(c.length);
  }
  return width;
}

std::string truncate_text(std::string_view text, std::size_t columns, Charset charset) {
  if (display_width(text) <= columns) return std::string(text);
  const Ellipsis ellipsis = ellipsis_for(charset);
  if (columns < ellipsis.width) return std::string(columns, '.');
  return std::string(prefix_of_width(text, columns - ellipsis.width)).append(ellipsis.text);
}

std::string truncate_middle(std::string_view text, std::size_t columns, Charset charset) {
  const std::size_t width = display_width(text);
  const Ellipsis ellipsis = ellipsis_for(charset);
  if (width <= columns || columns < ellipsis.width + 2)
    return truncate_text(text, columns, charset);
  const std::size_t tail = (columns - ellipsis.width) / 2;
  const std::string_view head = prefix_of_width(text, columns - ellipsis.width - tail);
  std::string_view rest = text.substr(head.size());
  while (display_width(rest) > tail) rest.remove_prefix(decode_code_point(rest).length);
  return std::string(head).append(ellipsis.text).append(rest);
}

}  // namespace berth
