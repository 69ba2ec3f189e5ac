// Unit tests of tmpfiles.h. tests/test_setup.py checks that systemd-tmpfiles reads the text the
// same way.
#include "harbour/tmpfiles.h"

#include <gtest/gtest.h>

namespace berth {
namespace {

TEST(Tmpfiles, a_plain_path_needs_no_quotes) {
  const std::string text = format_tmpfiles("/srv/berth", "/srv/berth/archive").value();
  EXPECT_TRUE(
      text.ends_with("\nd /srv/berth 1777 root root -\nx /srv/berth\n"
                     "d /srv/berth/archive 1777 root root -\n"))
      << text;
  EXPECT_TRUE(is_berth_tmpfiles(text));
  EXPECT_FALSE(is_berth_tmpfiles("d /tmp/berth 1777 root root -\n"));
}

TEST(Tmpfiles, the_archive_of_the_default_harbour_is_excluded_too) {
  const std::string text = format_tmpfiles("/tmp/berth", "/var/tmp/berth").value();
  EXPECT_TRUE(excludes_from_cleaning(text, "/tmp/berth"));
  EXPECT_TRUE(excludes_from_cleaning(text, "/var/tmp/berth"));
}

TEST(Tmpfiles, special_characters_are_escaped_and_read_back) {
  const std::string path = "/srv/a b*[c]?%h\"\\'\xc3\xa4";
  const std::string text = format_tmpfiles(path, "/a").value();
  EXPECT_NE(text.find(R"(d "/srv/a b*[c]?%%h\"\\'ä" 1777 root root -)"), std::string::npos) << text;
  EXPECT_NE(text.find(R"(x "/srv/a b\\*\\[c]\\?%%h\"\\\\'ä")"), std::string::npos) << text;
  for (const char type : {'d', 'x'}) {  // each line alone
    const auto start = text.find(std::string("\n") + type + " ") + 1;
    const auto line = text.substr(start, text.find('\n', start) - start);
    EXPECT_TRUE(excludes_from_cleaning(line, path)) << line;
    EXPECT_FALSE(excludes_from_cleaning(line, "/srv/a bX[c]?%h\"\\'\xc3\xa4")) << line;
  }
}

TEST(Tmpfiles, a_control_character_is_refused) {
  for (const char c : {'\n', '\r', '\0', '\t', '\x1b', '\x7f'}) {
    const std::string path = std::string("/srv/a") + c + "z /usr/bin/bash 4755 root root";
    EXPECT_FALSE(format_tmpfiles(path, "/srv/archive"));
    EXPECT_FALSE(format_tmpfiles("/srv/berth", path));
  }
}

TEST(Tmpfiles, lines_that_exclude_a_directory_from_cleaning) {
  const std::string path = "/tmp/berth";
  EXPECT_TRUE(excludes_from_cleaning("# x\n\nx /tmp/ber*\n", path));
  EXPECT_TRUE(excludes_from_cleaning("d  '/tmp/berth'\t1777 root root\n", path));
  EXPECT_FALSE(excludes_from_cleaning("d /tmp/berth 1777 root root 10d\n", path));
  EXPECT_FALSE(excludes_from_cleaning("q /tmp 1777 root root -\n", path)) << "not what is below it";
  EXPECT_FALSE(excludes_from_cleaning("X /tmp/berth\n", path)) << "the directory, not its files";
  EXPECT_FALSE(excludes_from_cleaning("#x /tmp/berth\n", path));
  EXPECT_FALSE(excludes_from_cleaning("x /tmp/berth-sim\nx\n\"\\", path));
}

}  // namespace
}  // namespace berth
