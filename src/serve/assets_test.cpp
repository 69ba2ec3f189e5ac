// Tests that the binary contains the files of the page, byte by byte, and that they are small.
#include "serve/assets.h"

#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <set>
#include <string>

namespace berth::serve {
namespace {

std::string file_content(std::string_view path) {
  std::ifstream file(std::string(BERTH_TEST_WEB_DIR) + std::string(path), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Assets, AreTheFilesOfTheFolder) {
  ASSERT_FALSE(web_files().empty());
  std::set<std::string_view> tags;
  for (const WebFile& file : web_files()) {
    EXPECT_EQ(file.asset.content, file_content(file.path)) << file.path;
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
  EXPECT_LT(bytes, 150'000U);
}

}  // namespace
}  // namespace berth::serve
