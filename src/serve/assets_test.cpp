// Tests that the binary contains the files of the page, byte by byte, and that they are small.
#include "serve/assets.h"

#include <algorithm>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

namespace berth::serve {
namespace {

std::string file_content(std::string_view path) {
  std::ifstream file(std::string(BERTH_TEST_WEB_DIR) + std::string(path), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// JavaScript without block comments, lines that are comments, indentation and empty lines.
std::string without_comments(std::string text) {
  for (std::size_t at = 0; (at = text.find("/*", at)) != std::string::npos;) {
    text.erase(at, text.find("*/", at) + 2 - at);
  }
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);) {
    line.erase(0, std::min(line.find_first_not_of(' '), line.size()));
    if (!line.empty() && !line.starts_with("//")) result += line + "\n";
  }
  return result;
}

TEST(Assets, AreTheFilesOfTheFolder) {
  ASSERT_FALSE(web_files().empty());
  std::set<std::string_view> tags;
  for (const WebFile& file : web_files()) {
    const std::string content = file_content(file.path);
    const bool is_script = file.path.ends_with(".js");
    EXPECT_EQ(file.asset.content, is_script ? without_comments(content) : content) << file.path;
    EXPECT_FALSE(file.asset.content.empty()) << file.path;
    EXPECT_FALSE(file.asset.content_type.empty()) << file.path;
    tags.insert(file.asset.tag);
  }
  EXPECT_EQ(tags.size(), web_files().size());
}

TEST(Assets, ThePageIsAtTheRoot) {
  const auto page = find_asset("/");
  ASSERT_TRUE(page);
  EXPECT_EQ(page->content, find_asset("/index.html")->content);
  EXPECT_EQ(page->content_type, "text/html; charset=utf-8");
}

TEST(Assets, NothingElseIsFound) {
  for (const char* path :
       {"", "index.html", "/..", "/../dev", "/INDEX.HTML", "/index.html/", "//"}) {
    EXPECT_FALSE(find_asset(path)) << path;
  }
}

TEST(Assets, AreSmall) {
  std::size_t bytes = 0;
  for (const WebFile& file : web_files()) bytes += file.asset.content.size();
  EXPECT_LT(bytes, 180'000U);
}

}  // namespace
}  // namespace berth::serve
