// Parses JSON strings, numbers and skipped values; see json_cursor.h.
#include "base/json_cursor.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdlib>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/text.h"

namespace berth {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

bool is_plain(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\';
}

// Skips the characters of a string that need no processing. Strings are most of a line, so it
// checks sixteen bytes at a time. Every x86-64 processor has SSE2.
inline const char* find_plain_end(const char* at, const char* end) {
#ifdef __SSE2__
  const __m128i quote = _mm_set1_epi8('"');
  const __m128i backslash = _mm_set1_epi8('\\');
  const __m128i blank = _mm_set1_epi8(0x20);
  while (end - at >= 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    // As signed numbers, bytes from 0x80 on are also less than a blank.
    const __m128i special =
        _mm_or_si128(_mm_cmplt_epi8(bytes, blank),
                     _mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, backslash)));
    const auto which = static_cast<unsigned>(_mm_movemask_epi8(special));
    if (which != 0) return at + std::countr_zero(which);
    at += 16;
  }
#endif
  while (at != end && is_plain(*at)) ++at;
  return at;
}

}  // namespace

JsonCursor::JsonCursor(std::string_view text, std::string& decoded)
    : at_(text.data()), end_(text.data() + text.size()), decoded_(decoded) {
  if (text.starts_with(kByteOrderMark)) at_ += kByteOrderMark.size();
  // An escape is longer than its decoded character, so the string never grows beyond this, and
  // views of it stay valid.
  decoded_.clear();
  decoded_.reserve(text.size());
}

bool JsonCursor::read_string(std::string_view& value) {
  if (!consume('"')) return false;
  const char* const begin = at_;
  for (;;) {
    at_ = find_plain_end(at_, end_);
    if (at_ == end_) return false;
    if (*at_ == '"') {
      value = {begin, static_cast<std::size_t>(at_ - begin)};
      ++at_;
      return true;
    }
    if (*at_ == '\\') return read_escaped_string(begin, value);
    const std::size_t length = utf8_length({at_, static_cast<std::size_t>(end_ - at_)});
    if (length < 2) return false;  // a control character, or not UTF-8
    at_ += length;
  }
}

// Continues a string that begins at `begin`. The next character is its first escape.
bool JsonCursor::read_escaped_string(const char* begin, std::string_view& value) {
  const std::size_t start = decoded_.size();
  decoded_.append(begin, at_);
  for (;;) {
    const char* const part = at_;
    at_ = find_plain_end(at_, end_);
    decoded_.append(part, at_);
    if (at_ == end_) return false;
    if (*at_ == '"') {
      ++at_;
      value = std::string_view(decoded_).substr(start);
      return true;
    }
    if (*at_ == '\\') {
      if (!read_escape()) return false;
      continue;
    }
    const std::size_t length = utf8_length({at_, static_cast<std::size_t>(end_ - at_)});
    if (length < 2) return false;
    decoded_.append(at_, length);
    at_ += length;
  }
}

bool JsonCursor::read_escape() {
  constexpr std::string_view kLetters = "\"\\/bfnrt";
  constexpr std::string_view kDecoded = "\"\\/\b\f\n\r\t";
  if (end_ - at_ < 2) return false;
  const char letter = at_[1];
  at_ += 2;
  if (const auto place = kLetters.find(letter); place != std::string_view::npos) {
    decoded_ += kDecoded[place];
    return true;
  }
  std::uint32_t c = 0;
  if (letter != 'u' || !read_code_unit(c)) return false;
  if (c >= 0xDC00 && c <= 0xDFFF) return false;  // a low surrogate without a high one
  if (c >= 0xD800 && c <= 0xDBFF) {
    std::uint32_t second = 0;
    if (end_ - at_ < 2 || at_[0] != '\\' || at_[1] != 'u') return false;
    at_ += 2;
    if (!read_code_unit(second) || second < 0xDC00 || second > 0xDFFF) return false;
    c = 0x10000 + ((c - 0xD800) << 10) + (second - 0xDC00);
  }
  append_utf8(decoded_, c);
  return true;
}

// Reads the four hexadecimal digits after \u.
bool JsonCursor::read_code_unit(std::uint32_t& value) {
  if (end_ - at_ < 4) return false;
  for (int i = 0; i < 4; ++i, ++at_) {
    const char digit = *at_;
    const char lower = static_cast<char>(digit | 0x20);
    value <<= 4;
    if (digit >= '0' && digit <= '9') {
      value |= static_cast<std::uint32_t>(digit - '0');
    } else if (lower >= 'a' && lower <= 'f') {
      value |= static_cast<std::uint32_t>(lower - 'a' + 10);
    } else {
      return false;
    }
  }
  return true;
}

bool JsonCursor::skip_digits() {
  const char* const begin = at_;
  while (at_ != end_ && *at_ >= '0' && *at_ <= '9') ++at_;
  return at_ != begin;
}

bool JsonCursor::read_number(std::optional<std::uint64_t>& value) {
  constexpr std::ptrdiff_t kSafeDigits = 19;  // 19 digits never overflow
  value.reset();
  const bool negative = peek() == '-';
  const char* const begin = at_;
  if (negative) ++at_;
  const char* const first = at_;
  std::uint64_t sum = 0;
  for (; at_ != end_ && *at_ >= '0' && *at_ <= '9'; ++at_) {
    sum = sum * 10 + static_cast<std::uint64_t>(*at_ - '0');
  }
  if (at_ == first || (*first == '0' && at_ - first > 1)) return false;
  const bool fraction = at_ != end_ && (*at_ == '.' || *at_ == 'e' || *at_ == 'E');
  if (!negative && !fraction && at_ - first <= kSafeDigits) {
    value = sum;
    return true;
  }
  return finish_number(begin, value);
}

// Reads the rest of a number after its integer part. A number that does not fit into a double is an
// error, as for nlohmann.
bool JsonCursor::finish_number(const char* begin, std::optional<std::uint64_t>& value) {
  const auto [rest, problem] = std::from_chars(begin, at_, value.emplace());
  if (problem != std::errc() || rest != at_) value.reset();  // negative, or too large
  if (at_ != end_ && *at_ == '.') {
    value.reset();
    ++at_;
    if (!skip_digits()) return false;
  }
  if (at_ != end_ && (*at_ == 'e' || *at_ == 'E')) {
    value.reset();
    ++at_;
    if (at_ != end_ && (*at_ == '+' || *at_ == '-')) ++at_;
    if (!skip_digits()) return false;
  }
  return value || std::isfinite(std::strtod(std::string(begin, at_).c_str(), nullptr));
}

bool JsonCursor::skip_word(std::string_view word) {
  for (const char c : word) {
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
  }
  return true;
}

// Skips a value that is not an object or array.
bool JsonCursor::skip_scalar() {
  std::string_view ignored;
  std::optional<std::uint64_t> number_ignored;
  switch (peek()) {
    case '"':
      return read_string(ignored);
    case 't':
      return skip_word("true");
    case 'f':
      return skip_word("false");
    case 'n':
      return skip_word("null");
    default:
      return read_number(number_ignored);
  }
}

// Without recursion: a hostile user may have nested a line deeper than the stack allows.
bool JsonCursor::skip_value() {
  std::string closers;  // the closing brackets of the open objects and arrays
  const auto key = [this] {
    std::string_view ignored;
    return read_string(ignored) && consume(':');
  };
  do {
    const char first = peek();
    if (first == '{' || first == '[') {
      const char closer = first == '{' ? '}' : ']';
      ++at_;
      if (!consume(closer)) {
        closers += closer;
        if (closer == '}' && !key()) return false;
        continue;
      }
    } else if (!skip_scalar()) {
      return false;
    }
    while (!closers.empty()) {
      if (consume(closers.back())) {
        closers.pop_back();
        continue;
      }
      if (!consume(',') || (closers.back() == '}' && !key())) return false;
      break;
    }
  } while (!closers.empty());
  return true;
}

}  // namespace berth
