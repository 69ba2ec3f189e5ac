// Tests of parsing lines, and of their keys and log names.
#include "batch/lines.h"

#include <gtest/gtest.h>

namespace berth::batch {
namespace {

std::vector<std::string> commands(std::string_view text) {
  std::vector<std::string> list;
  const auto lines = parse_lines(text, "jobs.txt").value();
  for (const BatchLine& line : lines) list.push_back(line.command);
  return list;
}

TEST(Lines, skips_blank_lines_and_comments) {
  using List = std::vector<std::string>;
  EXPECT_EQ(commands(""), List{});
  EXPECT_EQ(commands("\n  \n\t\r\n# a\n  # b\n"), List{});
  EXPECT_EQ(commands("a 1\n\nb # 2\n#c\n d"), (List{"a 1", "b # 2", "d"}));
  EXPECT_EQ(commands("\xef\xbb\xbf"
                     "a\r\nb\r\n"),
            (List{"a", "b"}));
  EXPECT_EQ(commands("a \\\nb"), (List{"a \\", "b"}));
}

TEST(Lines, have_their_number_and_line_in_the_file) {
  const auto lines = parse_lines("# x\na\n\nb\n", "jobs.txt").value();
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[1].number, 2U);
  EXPECT_EQ(lines[1].line, 4U);
}

TEST(Lines, refuses_nul_bytes_and_overlong_commands) {
  const auto nul = parse_lines(std::string_view("a\nb\0c\n", 6), "jobs.txt");
  ASSERT_FALSE(nul);
  EXPECT_EQ(nul.error().kind, ErrorKind::usage);
  EXPECT_NE(nul.error().message.find("line 2 of 'jobs.txt'"), std::string::npos);
  EXPECT_TRUE(parse_lines(std::string((128 << 10) - 1, 'x'), "-"));
  EXPECT_FALSE(parse_lines(std::string(128 << 10, 'x'), "-"));
}

TEST(Lines, keys_depend_on_text_and_occurrence_only) {
  const auto first = parse_lines("a\nb\na\n", "-").value();
  const auto moved = parse_lines("new\na\na\nb\n", "-").value();
  EXPECT_EQ(first[0].key, moved[1].key);
  EXPECT_EQ(first[2].key, moved[2].key);
  EXPECT_EQ(first[1].key, moved[3].key);
  EXPECT_NE(first[0].key, first[2].key);
  EXPECT_NE(first[0].key, first[1].key);
}

TEST(Lines, log_names_fit_every_file_system) {
  const BatchLine line{7, 9, "python train.py --lr 0.1 > 'a/b' && \x1b[31m\xff", ""};
  EXPECT_EQ(log_name(line, 20), "007-python_train.py_--lr_0.1_a_b_31m_.log");
  EXPECT_EQ(log_name({12345, 1, std::string(500, 'x'), ""}, 99999).size(), 5 + 1 + 60 + 4U);
}

TEST(Lines, default_log_folder_is_named_like_the_file) {
  EXPECT_EQ(default_log_folder("jobs.txt"), "jobs.logs");
  EXPECT_EQ(default_log_folder("/a.b/jobs"), "jobs.logs");
  EXPECT_EQ(default_log_folder("x/.jobs"), ".jobs.logs");
}

TEST(Lines, default_log_folder_without_a_file_is_named_by_the_commands) {
  const auto folder = [](const std::vector<std::string>& commands) {
    return default_log_folder(make_lines(commands).value());
  };
  EXPECT_EQ(folder({"a", "b"}), folder({"a", "b"}));
  EXPECT_NE(folder({"a", "b"}), folder({"a", "c"}));
  EXPECT_TRUE(folder({"a"}).starts_with("batch-"));
  EXPECT_EQ(folder({"a"}).size(), std::string("batch-12345678.logs").size());
}

}  // namespace
}  // namespace berth::batch
