// Unit tests of json_cursor.h: it accepts the same texts as nlohmann's parser, and returns the same
// strings and numbers.
#include "base/json_cursor.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <rapidcheck/gtest.h>

namespace berth {
namespace {

using Reference = nlohmann::ordered_json;

bool is_accepted(std::string_view text) {
  std::string decoded;
  JsonCursor in(text, decoded);
  return in.skip_value() && in.at_end();
}

// Pieces of JSON, and texts that are nearly JSON.
std::string generate_fragment() {
  return *rc::gen::element<std::string>(
      "{", "}", "[", "]", ",", ":", " ", "\t", "\"a\"", "\"\"", "\"a\\n\"", "\"\\u00e9\"",
      "\"\\ud83d\\ude00\"", "\"\\ud83d\"", "\"\\ude00\"", "\"\xc3\xa9\"", "\"\xff\"",
      "\"\xc0\xaf\"", "\"\xed\xa0\x80\"", "\"\x01\"", "\"\x7f\"", "\"\\x\"", "\"\\u12g4\"",
      "\"12345678\\", "0", "1", "-1", "-", "01", "1.5", "1.", "1e5", "1e", "1e999", "-1e999",
      "1e-999", "18446744073709551615", "18446744073709551616", "true", "false", "null", "nul",
      "\"a\":1", "{}", "[]", "{\"a\":[1,2]}", "\"", "\\", "\xef\xbb\xbf", "\n", "\r", "/", "NaN");
}

TEST(JsonCursor, accepts_only_valid_json) {
  for (const char* valid : {"{}", " [1, 2.5e3, -0, \"\\ud83d\\ude00\"] ", "\"x\"", "null", "[[[]]]",
                            "{\"a\":{\"b\":[{}]}}", "\xef\xbb\xbf{}"}) {
    EXPECT_TRUE(is_accepted(valid)) << valid;
    EXPECT_TRUE(Reference::accept(valid)) << valid;
  }
  for (const char* invalid : {"", " ", "{", "{}}", "[1,]", "{\"a\":1,}", "{\"a\"}", "{a:1}", "01",
                              "1.", "\"\\ud83d\"", "\"\xff\"", "\"\n\"", "1e999", "tru", "{} {}"}) {
    EXPECT_FALSE(is_accepted(invalid)) << invalid;
    EXPECT_FALSE(Reference::accept(invalid)) << invalid;
  }
  EXPECT_FALSE(is_accepted(std::string_view("{}\0", 3)));
}

TEST(JsonCursor, skips_deeply_nested_values) {
  const std::string deep(200'000, '[');
  EXPECT_FALSE(is_accepted(deep));
  EXPECT_TRUE(is_accepted(deep + std::string(200'000, ']')));
}

RC_GTEST_PROP(JsonCursor, accepts_the_same_texts_as_nlohmann, ()) {
  for (int round = 0; round < 50; ++round) {
    std::string text;
    const int parts = *rc::gen::inRange(1, 9);
    for (int i = 0; i < parts; ++i) text += generate_fragment();
    if (*rc::gen::arbitrary<bool>()) text = fmt::format("[{}]", text);
    RC_ASSERT(is_accepted(text) == Reference::accept(text));
  }
}

RC_GTEST_PROP(JsonCursor, reads_strings_and_numbers_like_nlohmann, ()) {
  Reference list = Reference::array();
  const int items = *rc::gen::inRange(0, 6);
  for (int i = 0; i < items; ++i) {
    if (*rc::gen::arbitrary<bool>()) {
      list.push_back(*rc::gen::arbitrary<std::uint64_t>());
    } else {
      list.push_back(*rc::gen::string<std::string>());
    }
  }
  // With all characters that are not ASCII escaped, or only those that must be.
  const std::string text =
      list.dump(-1, ' ', *rc::gen::arbitrary<bool>(), Reference::error_handler_t::replace);
  const Reference expected = Reference::parse(text);
  std::string decoded;
  JsonCursor in(text, decoded);
  Reference got = Reference::array();
  RC_ASSERT(in.read_array([&] {
    if (in.peek() == '"') {
      std::string_view value;
      const bool valid = in.read_string(value);
      got.push_back(std::string(value));
      return valid;
    }
    std::optional<std::uint64_t> value;
    const bool valid = in.read_number(value);
    got.push_back(value.value_or(0));
    return valid;
  }));
  RC_ASSERT(in.at_end());
  RC_ASSERT(got == expected);
}

}  // namespace
}  // namespace berth
