// Tests of quantity.h: which texts are accepted, which are refused, and how values are formatted.
#include "base/quantity.h"

#include <gtest/gtest.h>

namespace berth {
namespace {

using namespace std::chrono_literals;

TEST(ParseSize, takes_what_people_write) {
  EXPECT_EQ(parse_size("8GiB").value(), gib(8));
  EXPECT_EQ(parse_size("8G").value(), gib(8));
  EXPECT_EQ(parse_size("8g").value(), gib(8));
  EXPECT_EQ(parse_size("512MiB").value(), mib(512));
  EXPECT_EQ(parse_size("1.5 GiB").value(), mib(1536));
  EXPECT_EQ(parse_size("8GB").value(), Bytes{8'000'000'000});
  EXPECT_EQ(parse_size("0b").value(), Bytes{0});
}

TEST(ParseSize, refuses_everything_else_and_says_why) {
  for (const char* text : {"", "GiB", "8", "-8GiB", "-0GiB", "8 potatoes", "nanGiB", "infG", "1e3G",
                           "0x10G", " 8G", "8GiB ", "99999999999TiB"}) {
    const auto size = parse_size(text);
    ASSERT_FALSE(size) << text;
    EXPECT_EQ(size.error().kind, ErrorKind::usage);
    EXPECT_NE(size.error().message.find(text), std::string::npos);
  }
  const auto contains = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  const std::string negative = parse_size("-8GiB").error().message;
  EXPECT_TRUE(contains(negative, "'-8GiB'") && contains(negative, "negative")) << negative;
  const std::string bare = parse_size("8").error().message;
  EXPECT_TRUE(contains(bare, "'8'") && contains(bare, "no unit") && contains(bare, "8GiB")) << bare;
}

TEST(ParseDuration, takes_and_refuses) {
  EXPECT_EQ(parse_duration("90s").value(), 90s);
  EXPECT_EQ(parse_duration("1.5h").value(), 90min);
  EXPECT_EQ(parse_duration("1d").value(), 24h);
  EXPECT_EQ(parse_duration("500ms").value(), 500ms);
  for (const char* text : {"", "10", "-1s", "1y", "s", "1h30", "1h-30m", "h1", "1:30", "1:60:00",
                           "1:00:60", "1:2:3:4", "-1:00:00", "9999999:00:00", "1d-1h"})
    EXPECT_FALSE(parse_duration(text)) << text;
}

TEST(ParseDuration, takes_several_units_and_words) {
  EXPECT_EQ(parse_duration("1h30m").value(), 90min);
  EXPECT_EQ(parse_duration("2h 5m").value(), 125min);
  EXPECT_EQ(parse_duration("1d 2h 3m 4.5s").value(), 26h + 3min + 4500ms);
  EXPECT_EQ(parse_duration("1w").value(), 168h);
  EXPECT_EQ(parse_duration("2hours").value(), 2h);
  EXPECT_EQ(parse_duration("10 Minutes").value(), 10min);
  EXPECT_EQ(parse_duration("1:30:00").value(), 90min);
  EXPECT_EQ(parse_duration("2-12:00:01").value(), 60h + 1s);
}

TEST(FormatSize, has_three_digits) {
  EXPECT_EQ(format_size({0}), "0");
  EXPECT_EQ(format_size({512}), "512 B");
  EXPECT_EQ(format_size(mib(512)), "512 MiB");
  EXPECT_EQ(format_size(gib(24)), "24 GiB");
  EXPECT_EQ(format_size(mib(9318)), "9.1 GiB");
  EXPECT_EQ(format_size(mib(1000)), "1 GiB");
}

TEST(FormatDuration, has_two_units) {
  EXPECT_EQ(format_duration(20s), "20s");
  EXPECT_EQ(format_duration(1500ms), "1.5s");
  EXPECT_EQ(format_duration(125min), "2h 5m");
  EXPECT_EQ(format_duration(10min), "10m");
  EXPECT_EQ(format_duration(76h), "3d 4h");
  EXPECT_EQ(format_duration(0s), "0s");
  EXPECT_EQ(format_duration(10ms), "10ms");
  EXPECT_EQ(format_duration(10us), "1ms");
}

TEST(ToMib, rounds_to_the_nearest) {
  EXPECT_EQ(to_mib(mib(3)), 3U);
  EXPECT_EQ(to_mib({mib(3).count + 524288}), 4U);
  EXPECT_EQ(to_mib({mib(3).count + 524287}), 3U);
}

}  // namespace
}  // namespace berth
