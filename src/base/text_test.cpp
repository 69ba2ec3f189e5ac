// Tests of text.h: hostile text is escaped, ordinary text is not changed, and widths are right.
#include "base/text.h"

#include <gtest/gtest.h>
#include <vector>

namespace berth {
namespace {

TEST(Printable, leaves_honest_text_alone) {
  EXPECT_EQ(printable("NVIDIA RTX A6000"), "NVIDIA RTX A6000");
  EXPECT_EQ(printable("Grüße 東京"), "Grüße 東京");
}

TEST(Printable, shows_controls_instead_of_sending_them) {
  EXPECT_EQ(printable("a\x1b[31mb"), "a\\x1b[31mb");
  EXPECT_EQ(printable("a\nb\rc\td"), "a\\nb\\rc\\td");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\x7f"), "\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"), "\\u009b");        // C1 "CSI"
  EXPECT_EQ(printable("\u202Eevil"), "\\u202eevil");  // right-to-left override
  EXPECT_EQ(printable("a\u200Bb"), "a\\u200bb");      // zero width
  EXPECT_EQ(printable("\U000E0041"), "\\U000e0041");  // invisible tag
}

TEST(Printable, shows_bytes_that_are_not_utf8) {
  EXPECT_EQ(printable("\xff"), "\\xff");
  EXPECT_EQ(printable("\xc0\x9b"), "\\xc0\\x9b");           // overlong
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // surrogate
  EXPECT_EQ(printable("\xe2\x82"), "\\xe2\\x82");           // cut short
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
}

TEST(Printable, in_ascii_escapes_the_rest_too) {
  EXPECT_EQ(printable("Grüße", Charset::ascii), "Gr\\u00fc\\u00dfe");
}

TEST(DisplayWidth, counts_columns) {
  EXPECT_EQ(display_width("abc"), 3U);
  EXPECT_EQ(display_width("東京"), 4U);
  EXPECT_EQ(display_width("e\u0301"), 1U);
}

TEST(TruncateText, cuts_and_marks) {
  EXPECT_EQ(truncate_text("abc", 3), "abc");
  EXPECT_EQ(truncate_text("abcdef", 4), "abc…");
  EXPECT_EQ(truncate_text("abcdef", 5, Charset::ascii), "ab...");
  EXPECT_EQ(truncate_text("東京都", 4), "東…");
  EXPECT_EQ(truncate_text("abcdef", 0), "");
  EXPECT_EQ(truncate_text("abcdef", 2, Charset::ascii), "..");
}

TEST(TruncateMiddle, keeps_both_ends) {
  EXPECT_EQ(truncate_middle("abcdef", 6), "abcdef");
  EXPECT_EQ(truncate_middle("abcdef", 5), "ab…ef");
  EXPECT_EQ(truncate_middle("abcdef", 4), "ab…f");
  EXPECT_EQ(truncate_middle("abcdefgh", 7, Charset::ascii), "ab...gh");
  EXPECT_EQ(truncate_middle("東京都庁", 5), "東…庁");
  EXPECT_EQ(truncate_middle("abcdef", 2), "a…");
  EXPECT_EQ(truncate_middle("abcdef", 0), "");
}

TEST(JoinText, puts_the_separator_between_elements_only) {
  EXPECT_EQ(join_text(std::vector<std::string>{}, ", "), "");
  EXPECT_EQ(join_text(std::vector<std::string>{"a"}, ", "), "a");
  EXPECT_EQ(join_text(std::vector<std::string>{"", "b", "c"}, ", "), ", b, c");
  const auto double_text = [](int number) { return std::to_string(2 * number); };
  EXPECT_EQ(join_text(std::vector<int>{1, 2}, " and ", double_text), "2 and 4");
}

TEST(GpuList, has_a_plural) {
  EXPECT_EQ(gpu_list("0"), "GPU 0");
  EXPECT_EQ(gpu_list("2:1"), "GPU 2:1");
  EXPECT_EQ(gpu_list("0,2"), "GPUs 0,2");
}

TEST(InQuotes, is_short_even_for_a_huge_text) {
  EXPECT_EQ(in_quotes("x"), "'x'");
  EXPECT_LE(in_quotes(std::string(1 << 20, 'x')).size(), 90U);
}

}  // namespace
}  // namespace berth
