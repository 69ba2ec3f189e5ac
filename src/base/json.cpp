// Holds, parses and writes JSON values; see json.h.
#include "base/json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <locale.h>
#include <system_error>

#include "base/json_cursor.h"
#include "base/sha1.h"
#include "base/text.h"

namespace berth {

Json::Json(std::nullptr_t) : value_(nullptr) {}
Json::Json(const char* text) : value_(std::string(text)) {}
Json::Json(std::string_view text) : value_(std::string(text)) {}
Json::Json(std::string text) : value_(std::move(text)) {}
Json::Json(double number) : value_(number) {}
Json::Json(const std::vector<std::string>& texts) : value_(Array(texts.begin(), texts.end())) {}
Json::Json(Array items) : value_(std::move(items)) {}
Json::Json(Object members) : value_(std::move(members)) {}
Json::Json(Flag flag) : value_(flag.value) {}

Json::Json(Integer integer) {
  if (integer.is_negative) {
    value_ = static_cast<std::int64_t>(integer.bits);
  } else {
    value_ = integer.bits;
  }
}

Json::Json(std::initializer_list<Member> members) {
  Object& object = value_.emplace<Object>();
  object.reserve(members.size());
  for (const Member& member : members) {
    object.emplace_back(member.key, std::move(member.value));
  }
}

Json Json::array(std::initializer_list<Json> items) {
  return Array(items);
}

Json::Json(const Json& other) = default;
Json::Json(Json&& other) noexcept = default;
Json& Json::operator=(const Json& other) = default;
Json& Json::operator=(Json&& other) noexcept = default;
Json::~Json() = default;

bool Json::is_null() const {
  return std::holds_alternative<std::nullptr_t>(value_);
}

const std::string* Json::as_string() const {
  return std::get_if<std::string>(&value_);
}

const Json::Array* Json::as_array() const {
  return std::get_if<Array>(&value_);
}

const Json::Object* Json::as_object() const {
  return std::get_if<Object>(&value_);
}

std::optional<bool> Json::as_bool() const {
  const auto* const flag = std::get_if<bool>(&value_);
  return flag != nullptr ? std::optional(*flag) : std::nullopt;
}

std::optional<std::uint64_t> Json::as_unsigned() const {
  const auto* const number = std::get_if<std::uint64_t>(&value_);
  return number != nullptr ? std::optional(*number) : std::nullopt;
}

std::optional<std::int64_t> Json::as_integer() const {
  if (const auto* const negative = std::get_if<std::int64_t>(&value_)) return *negative;
  const auto number = as_unsigned();
  if (!number || !std::in_range<std::int64_t>(*number)) return std::nullopt;
  return static_cast<std::int64_t>(*number);
}

std::optional<double> Json::as_number() const {
  if (const auto* const number = std::get_if<double>(&value_)) return *number;
  if (const auto* const negative = std::get_if<std::int64_t>(&value_)) {
    return static_cast<double>(*negative);
  }
  const auto number = as_unsigned();
  return number ? std::optional(static_cast<double>(*number)) : std::nullopt;
}

const Json* Json::find(std::string_view key) const {
  const Object* const members = as_object();
  if (members == nullptr) return nullptr;
  const auto found = std::find_if(members->rbegin(), members->rend(),
                                  [&](const Member& member) { return member.key == key; });
  return found == members->rend() ? nullptr : &found->value;
}

std::size_t Json::size() const {
  if (const Array* const items = as_array()) return items->size();
  const Object* const members = as_object();
  return members == nullptr ? 0 : members->size();
}

Json& Json::operator[](std::string_view key) {
  if (is_null()) value_.emplace<Object>();
  auto& members = std::get<Object>(value_);
  const auto found = std::find_if(members.begin(), members.end(),
                                  [&](const Member& member) { return member.key == key; });
  return found == members.end() ? members.emplace_back(key, nullptr).value : found->value;
}

void Json::push_back(Json item) {
  if (is_null()) value_.emplace<Array>();
  std::get<Array>(value_).push_back(std::move(item));
}

void Json::append_members(Json object) {
  auto& members = std::get<Object>(value_);
  for (Member& member : std::get<Object>(object.value_)) members.push_back(std::move(member));
}

namespace {

// strtod() for the locale "C": the program that loads the Python package may have set another
// one, with another decimal point.
double parse_double(const std::string& text) {
  static const locale_t kLocale = ::newlocale(LC_ALL_MASK, "C", nullptr);
  return ::strtod_l(text.c_str(), nullptr, kLocale);
}

class Parser {
 public:
  Parser(std::string_view text, int max_depth)
      : text_(text), depth_left_(max_depth), in_(text, decoded_) {}

  Result<Json> parse() {
    Json json;
    if (read_value(json) && in_.at_end()) return json;
    if (depth_left_ < 0) return fail(ErrorKind::io, "is nested too deeply");
    const auto place = static_cast<std::size_t>(in_.position() - text_.data());
    const auto before = text_.substr(0, place);
    const auto lines = std::count(before.begin(), before.end(), '\n');
    return fail(ErrorKind::io,
                fmt::format("is not valid JSON at line {}, byte {}: {}", lines + 1, place + 1,
                            place == text_.size() ? "the text ends too early" : "a syntax error"));
  }

 private:
  bool read_value(Json& value) {
    switch (in_.peek()) {
      case '{':
        return read_object(value);
      case '[':
        return read_array(value);
      case '"': {
        std::string_view text;
        if (!in_.read_string(text)) return false;
        value = text;
        return true;
      }
      case 't':
        value = true;
        return in_.skip_value();
      case 'f':
        value = false;
        return in_.skip_value();
      case 'n':
        return in_.skip_value();
      default:
        return read_number(value);
    }
  }

  bool read_object(Json& value) {
    if (--depth_left_ < 0) return false;
    Json::Object members;
    const auto read_member = [&](std::string_view key) {
      return read_value(members.emplace_back(key, nullptr).value);
    };
    if (!in_.read_object(read_member)) return false;
    ++depth_left_;
    value = std::move(members);
    return true;
  }

  bool read_array(Json& value) {
    if (--depth_left_ < 0) return false;
    Json::Array items;
    if (!in_.read_array([&] { return read_value(items.emplace_back()); })) return false;
    ++depth_left_;
    value = std::move(items);
    return true;
  }

  // An integer that does not fit into 64 bits becomes a double, as do fractions.
  bool read_number(Json& value) {
    const char* const begin = in_.position();
    std::optional<std::uint64_t> number;
    if (!in_.read_number(number)) return false;
    if (number) {
      value = *number;
    } else if (const std::string_view text(begin, in_.position());
               const auto integer = parse_integer<std::int64_t>(text)) {
      value = *integer;
    } else {
      value = parse_double(std::string(text));
    }
    return true;
  }

  std::string_view text_;
  int depth_left_;  // negative after an error: nested too deeply
  std::string decoded_;
  JsonCursor in_;
};

// The length of an invalid sequence at the start of `text`: all bytes that could begin a character.
std::size_t invalid_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0xC2 || first > 0xF4 || text.size() < 2) return 1;
  // Overlong forms, surrogates and values beyond Unicode show in the second byte.
  const unsigned char low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) return 1;
  std::size_t length = 2;
  while (length < text.size() && (byte(length) & 0xC0) == 0x80) ++length;
  return length;
}

// The code point of the `length` bytes at the start of `text`, which are valid UTF-8.
std::uint32_t decode_utf8(std::string_view text, std::size_t length) {
  std::uint32_t c = static_cast<unsigned char>(text[0]) & (0xFFU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    c = (c << 6) | (static_cast<unsigned char>(text[i]) & 0x3FU);
  }
  return c;
}

}  // namespace

class JsonWriter {
 public:
  enum class Order { as_added, alphabetical };

  JsonWriter(Charset charset, int indent, Order order)
      : charset_(charset), indent_(indent), order_(order) {}

  std::string write(const Json& json) && {
    write_value(json, 0);
    return std::move(out_);
  }

 private:
  void write_value(const Json& json, int depth) {
    if (const auto* const text = std::get_if<std::string>(&json.value_)) {
      write_string(*text);
    } else if (const auto* const members = std::get_if<Json::Object>(&json.value_)) {
      write_object(*members, depth);
    } else if (const auto* const items = std::get_if<Json::Array>(&json.value_)) {
      write_list('[', ']', *items, depth, [&](const Json& item) { write_value(item, depth + 1); });
    } else if (const auto* const count = std::get_if<std::uint64_t>(&json.value_)) {
      write_integer(*count);
    } else if (const auto* const negative = std::get_if<std::int64_t>(&json.value_)) {
      write_integer(*negative);
    } else if (const auto* const number = std::get_if<double>(&json.value_)) {
      write_double(*number);
    } else if (const auto* const flag = std::get_if<bool>(&json.value_)) {
      out_ += *flag ? "true" : "false";
    } else {
      out_ += "null";
    }
  }

  void write_object(const Json::Object& members, int depth) {
    const auto write_member = [&](const Json::Member& member) {
      write_string(member.key);
      out_ += indent_ < 0 ? ":" : ": ";
      write_value(member.value, depth + 1);
    };
    if (order_ == Order::as_added) return write_list('{', '}', members, depth, write_member);
    std::vector<const Json::Member*> sorted;
    sorted.reserve(members.size());
    for (const Json::Member& member : members) sorted.push_back(&member);
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const auto* a, const auto* b) { return a->key < b->key; });
    write_list('{', '}', sorted, depth, [&](const Json::Member* member) { write_member(*member); });
  }

  template <class List, class WriteItem>
  void write_list(char open, char close, const List& list, int depth, const WriteItem& write_item) {
    out_ += open;
    bool is_first = true;
    for (const auto& item : list) {
      if (!is_first) out_ += ',';
      is_first = false;
      break_line(depth + 1);
      write_item(item);
    }
    if (!is_first) break_line(depth);
    out_ += close;
  }

  void break_line(int depth) {
    if (indent_ < 0) return;
    out_ += '\n';
    out_.append(static_cast<std::size_t>(indent_) * static_cast<std::size_t>(depth), ' ');
  }

  template <class Integer>
  void write_integer(Integer number) {
    std::array<char, 24> buffer{};
    const auto [end, problem] = std::to_chars(buffer.begin(), buffer.end(), number);
    out_.append(buffer.begin(), end);
  }

  // The shortest decimal number that reads as the same double. JSON has no infinities.
  void write_double(double number) {
    constexpr int kMinPoint = -4;  // 0.0001234
    constexpr int kMaxPoint = 15;  // 123400000000000.0
    if (!std::isfinite(number)) {
      out_ += "null";
      return;
    }
    if (std::signbit(number)) out_ += '-';
    if (number == 0) {
      out_ += "0.0";
      return;
    }
    std::array<char, 32> buffer{};  // d.ddde+xx
    const auto [end, problem] = std::to_chars(buffer.begin(), buffer.end(), std::fabs(number),
                                              std::chars_format::scientific);
    const std::string_view text(buffer.begin(), end);
    const std::size_t e = text.find('e');
    std::string digits(text.substr(0, e));
    if (digits.size() > 1) digits.erase(1, 1);
    const bool is_large = text[e + 1] == '+';
    const int exponent = parse_integer<int>(text.substr(e + 2)).value_or(0);
    const int point = (is_large ? exponent : -exponent) + 1;  // digits before the decimal point
    const auto count = static_cast<int>(digits.size());
    if (point > kMaxPoint || point <= kMinPoint) {
      out_ += digits[0];
      if (count > 1) out_.append(".").append(digits, 1);
      out_ += text.substr(e);
    } else if (point <= 0) {
      out_.append("0.").append(static_cast<std::size_t>(-point), '0').append(digits);
    } else if (point < count) {
      out_ += digits.insert(static_cast<std::size_t>(point), 1, '.');
    } else {
      out_.append(digits).append(static_cast<std::size_t>(point - count), '0').append(".0");
    }
  }

  void write_string(std::string_view text) {
    out_ += '"';
    while (!text.empty()) {
      std::size_t plain = 0;
      while (plain < text.size() && is_plain(text[plain])) ++plain;
      out_ += text.substr(0, plain);
      text.remove_prefix(plain);
      if (!text.empty()) text.remove_prefix(write_character(text));
    }
    out_ += '"';
  }

  // DEL is a control character, but JSON allows it.
  bool is_plain(char c) const {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 && byte < (charset_ == Charset::utf8 ? 0x80 : 0x7F) && c != '"' &&
           c != '\\';
  }

  // Writes the first character of `text`, which is not plain. Returns its length.
  std::size_t write_character(std::string_view text) {
    constexpr std::string_view kSpecial = "\"\\\b\f\n\r\t";
    constexpr std::string_view kLetters = "\"\\bfnrt";
    constexpr std::uint32_t kReplacement = 0xFFFD;
    if (const auto place = kSpecial.find(text[0]); place != std::string_view::npos) {
      out_ += '\\';
      out_ += kLetters[place];
      return 1;
    }
    const std::size_t length = utf8_length(text);
    if (length == 1) {
      write_escape(static_cast<unsigned char>(text[0]));
    } else if (charset_ == Charset::ascii) {
      write_escape(length == 0 ? kReplacement : decode_utf8(text, length));
    } else if (length == 0) {
      append_utf8(out_, kReplacement);
    } else {
      out_ += text.substr(0, length);
    }
    return length == 0 ? invalid_length(text) : length;
  }

  void write_escape(std::uint32_t c) {
    const auto write_unit = [&](std::uint32_t unit) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      out_ += "\\u";
      for (int shift = 12; shift >= 0; shift -= 4) out_ += kDigits[(unit >> shift) & 0xF];
    };
    if (c > 0xFFFF) {
      write_unit(0xD7C0 + (c >> 10));
      write_unit(0xDC00 + (c & 0x3FF));
    } else {
      write_unit(c);
    }
  }

  Charset charset_;
  int indent_;
  Order order_;
  std::string out_;
};

Result<Json> parse_json(std::string_view text, int max_depth) {
  return Parser(text, max_depth).parse();
}

std::string to_ascii_json(const Json& json, int indent) {
  return JsonWriter(Charset::ascii, indent, JsonWriter::Order::as_added).write(json);
}
std::string to_utf8_json(const Json& json, int indent) {
  return JsonWriter(Charset::utf8, indent, JsonWriter::Order::as_added).write(json);
}
std::string to_sorted_json(const Json& json) {
  return JsonWriter(Charset::ascii, kOneLine, JsonWriter::Order::alphabetical).write(json);
}

std::string hide_command_in_job(std::string_view job) {
  constexpr std::size_t kHashDigits = 16;
  constexpr std::string_view kHashMark = " #";
  if (job.find_first_of(" /") == std::string_view::npos) return std::string(job);
  std::string_view program = job.substr(0, job.find(' '));
  program.remove_prefix(std::min(program.rfind('/') + 1, program.size()));
  // A type of a host that hides commands is such a hash already.
  const std::string_view rest = job.substr(std::min(job.find(' '), job.size()));
  const bool is_hash =
      rest.starts_with(kHashMark) &&
      rest.substr(kHashMark.size()).substr(0, kHashDigits).find_first_not_of("0123456789abcdef") ==
          std::string_view::npos;
  if (is_hash) return std::string(job);
  return fmt::format("{}{}{}", program, kHashMark, sha1(job).substr(0, kHashDigits));
}

}  // namespace berth
