// Unit tests of json.h: it reads what nlohmann's parser reads, and writes what its writer writes.
#include "base/json.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <rapidcheck/gtest.h>

#include "base/json_fields.h"
#include "base/text.h"

namespace berth {
namespace {

using Reference = nlohmann::ordered_json;

// Texts with all kinds of characters and bytes: invalid and incomplete UTF-8 in particular.
std::string generate_text() {
  std::string text;
  const int parts = *rc::gen::inRange(0, 6);
  for (int i = 0; i < parts; ++i) {
    text += *rc::gen::element<std::string>(
        "a", "\"", "\\", "/", "\n", "\t", "\b", "\f", "\r", std::string(1, '\0'), "\x1f", "\x7f",
        "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xc3", "\xe2\x82", "\xf0\x9f\x98", "\xf0",
        "\x80", "\xc0\xaf", "\xed\xa0\x80", "\xe0\x80\x80", "\xf4\x90\x80\x80", "\xf5", "\xff",
        *rc::gen::string<std::string>());
  }
  return text;
}

// Numbers as Berth writes them: rounded to thousandths or millionths. Of a number that needs 17
// digits nlohmann does not always write the nearest ones.
double generate_double() {
  if (*rc::gen::arbitrary<bool>()) {
    return static_cast<double>(*rc::gen::arbitrary<std::int32_t>()) / *rc::gen::element(1e3, 1e6);
  }
  return *rc::gen::element(0.0, -0.0, 1.0, 0.1, 1e-4, 1e-5, 123456789012345.0, 1e15, 1e16, 2e22,
                           1.5e300, -2.5e-300, std::numeric_limits<double>::max(),
                           std::numeric_limits<double>::infinity());
}

// The same value twice.
std::pair<Json, Reference> generate_value(int depth) {
  const auto same = [](const auto& value) { return std::pair(Json(value), Reference(value)); };
  switch (*rc::gen::inRange(0, depth > 0 ? 9 : 7)) {
    case 0:
      return {Json(nullptr), Reference(nullptr)};
    case 1:
      return same(*rc::gen::arbitrary<bool>());
    case 2:
      return same(*rc::gen::arbitrary<std::int64_t>());
    case 3:
      return same(*rc::gen::arbitrary<std::uint64_t>());
    case 4:
      return same(generate_double());
    case 5:
    case 6:
      return same(generate_text());
    case 7: {
      std::pair<Json, Reference> list(Json::array(), Reference::array());
      const int items = *rc::gen::inRange(0, 4);
      for (int i = 0; i < items; ++i) {
        auto [item, reference] = generate_value(depth - 1);
        list.first.push_back(std::move(item));
        list.second.push_back(std::move(reference));
      }
      return list;
    }
    default: {
      std::pair<Json, Reference> object(Json::Object(), Reference::object());
      const int members = *rc::gen::inRange(0, 4);
      for (int i = 0; i < members; ++i) {
        auto [value, reference] = generate_value(depth - 1);
        const std::string key = generate_text();
        object.first[key] = std::move(value);
        object.second[key] = std::move(reference);
      }
      return object;
    }
  }
}

RC_GTEST_PROP(Json, writes_the_same_bytes_as_nlohmann, ()) {
  const auto [json, reference] = generate_value(3);
  const int indent = *rc::gen::element(kOneLine, 0, 1, 2);
  const auto replace = Reference::error_handler_t::replace;
  RC_ASSERT(to_ascii_json(json, indent) == reference.dump(indent, ' ', true, replace));
  RC_ASSERT(to_utf8_json(json, indent) == reference.dump(indent, ' ', false, replace));
  // nlohmann's other type, which keeps the keys in alphabetical order.
  RC_ASSERT(to_sorted_json(json) == nlohmann::json(reference).dump(-1, ' ', true, replace));
}

RC_GTEST_PROP(Json, reads_what_it_wrote, ()) {
  const auto [json, reference] = generate_value(3);
  const std::string text = to_utf8_json(json, *rc::gen::element(kOneLine, 2));
  const auto parsed = parse_json(text);
  RC_ASSERT(parsed.has_value());
  RC_ASSERT(to_utf8_json(*parsed) == to_utf8_json(json));
}

RC_GTEST_PROP(Json, reads_the_same_numbers_as_nlohmann, ()) {
  const auto digits = [](int most) {
    std::string text;
    for (int i = *rc::gen::inRange(1, most); i > 0; --i)
      text += *rc::gen::inRange<char>('0', '9' + 1);
    return text;
  };
  std::string text = *rc::gen::element<std::string>("", "-") + digits(24);
  if (*rc::gen::arbitrary<bool>()) text += "." + digits(24);
  if (*rc::gen::arbitrary<bool>()) {
    text += *rc::gen::element<std::string>("e", "E", "e-", "e+") + digits(5);
  }
  const auto parsed = parse_json(text);
  const auto reference = Reference::parse(text, nullptr, false);
  RC_ASSERT(parsed.has_value() == !reference.is_discarded());
  if (!parsed) return;
  RC_ASSERT(parsed->as_number() == reference.get<double>());
  RC_ASSERT(parse_json(to_utf8_json(*parsed))->as_number() == parsed->as_number());
  if (text == "-0") return;  // nlohmann takes it for a negative number
  RC_ASSERT(parsed->as_unsigned().has_value() == reference.is_number_unsigned());
  if (parsed->as_unsigned()) RC_ASSERT(parsed->as_unsigned() == reference.get<std::uint64_t>());
}

TEST(Json, types_do_not_mix) {
  const Json text("1");
  EXPECT_EQ(*text.as_string(), "1");
  EXPECT_FALSE(text.as_bool() || text.as_unsigned() || text.as_integer() || text.as_number());
  EXPECT_TRUE(text.as_array() == nullptr && text.as_object() == nullptr && !text.is_null());
  EXPECT_EQ(text.find("1"), nullptr);
  EXPECT_EQ(text.size(), 0U);
  const Json negative(-1);
  EXPECT_FALSE(negative.as_unsigned());
  EXPECT_EQ(negative.as_integer(), -1);
  EXPECT_EQ(negative.as_number(), -1.0);
  EXPECT_FALSE(Json(UINT64_MAX).as_integer());
  EXPECT_EQ(Json(true).as_bool(), true);
  EXPECT_FALSE(Json(true).as_unsigned());
  EXPECT_TRUE(Json().is_null());
}

TEST(Json, objects_are_built_in_order) {
  Json object{{"b", 1}, {"a", Json::array({1, "x", nullptr})}};
  object["c"] = 2.5;
  object["b"] = true;
  object.append_members({{"d", {{"e", std::vector<std::string>{"f", "g"}}}}});
  const Json copy = object;
  object["b"] = false;
  EXPECT_EQ(to_ascii_json(copy), R"({"b":true,"a":[1,"x",null],"c":2.5,"d":{"e":["f","g"]}})");
  EXPECT_EQ(to_sorted_json(object), R"({"a":[1,"x",null],"b":false,"c":2.5,"d":{"e":["f","g"]}})");
  EXPECT_EQ(to_ascii_json(Json::array(), 2), "[]");
  EXPECT_EQ(to_ascii_json(Json(Json::Object()), 2), "{}");
  EXPECT_EQ(copy.size(), 4U);
}

TEST(Json, of_a_repeated_key_the_last_counts) {
  const Json json = parse_json(R"({"a": 1, "b": 2, "a": "x"})").value();
  EXPECT_EQ(string_field(json, "a"), "x");
  EXPECT_FALSE(number_field(json, "a"));
  EXPECT_EQ(number_field<int>(json, "b"), 2);
}

TEST(Json, nesting_is_limited) {
  const auto nested = [](int depth) {
    return std::string(static_cast<std::size_t>(depth), '[') +
           std::string(static_cast<std::size_t>(depth), ']');
  };
  EXPECT_TRUE(parse_json(nested(kMaxJsonDepth)));
  const auto deep = parse_json(nested(kMaxJsonDepth + 1));
  ASSERT_FALSE(deep);
  EXPECT_EQ(deep.error().message, "is nested too deeply");
  EXPECT_FALSE(parse_json(std::string(10'000'000, '[')));
  EXPECT_TRUE(parse_json(R"([{}, {}, {"a": []}])", 3));
  EXPECT_FALSE(parse_json(R"([{}, {}, {"a": []}])", 2));
}

TEST(Json, errors_say_where) {
  const auto message = [](std::string_view text) { return parse_json(text).error().message; };
  EXPECT_EQ(message("{\"a\":\n x}"), "is not valid JSON at line 2, byte 8: a syntax error");
  EXPECT_EQ(message("nul"), "is not valid JSON at line 1, byte 4: the text ends too early");
  EXPECT_EQ(message("nil"), "is not valid JSON at line 1, byte 2: a syntax error");
  EXPECT_EQ(message("{} {}"), "is not valid JSON at line 1, byte 4: a syntax error");
  EXPECT_EQ(message(std::string_view("{}\0", 3)),
            "is not valid JSON at line 1, byte 3: a syntax error");
}

TEST(Json, a_job_type_without_its_command) {
  EXPECT_EQ(hide_command_in_job("training"), "training");
  const std::string hidden = hide_command_in_job("/opt/bin/sim --token secret");
  EXPECT_EQ(hidden.substr(0, 5), "sim #");
  EXPECT_EQ(hidden.size(), 21U);
  EXPECT_EQ(hide_command_in_job(hidden), hidden);
  EXPECT_EQ(hide_command_in_job(hidden + " on 2 GPUs"), hidden + " on 2 GPUs");
  EXPECT_NE(hide_command_in_job("/opt/bin/sim --token other"), hidden);
  EXPECT_EQ(to_ascii_json(job_or_null("sh x", "ann", "ann")), "\"sh x\"");
  EXPECT_EQ(to_ascii_json(job_or_null("", "ann", {})), "null");
}

}  // namespace
}  // namespace berth
