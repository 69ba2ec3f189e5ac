// Tests of suggestion.h: which mistyped words are recognized.
#include "base/suggestion.h"

#include <gtest/gtest.h>

namespace berth {
namespace {

TEST(FindSimilarWord, finds_mistyped_words_and_no_others) {
  const std::vector<std::string> commands{"run", "status", "log", "top", "drain", "undrain"};
  for (const char* word : {"staus", "sttaus", "Status", "STATU", "stat_us"})
    EXPECT_EQ(find_similar_word(word, commands), "status") << word;
  EXPECT_EQ(find_similar_word("rnu", commands), "run");
  EXPECT_EQ(find_similar_word("drian", commands), "drain");
  for (const char* word : {"ls", "foo", "st", "", "statistics"})
    EXPECT_EQ(find_similar_word(word, commands), "") << word;
  EXPECT_EQ(find_similar_word(std::string(1000, 's'), commands), "");
}

TEST(FindSimilarWord, knows_the_spellings_of_flags) {
  const std::vector<std::string> flags{"--mem", "--min-mem", "--no-wait", "--max-util"};
  for (const char* word : {"--nowait", "--no_wait", "--no-Wait", "--no-wiat"})
    EXPECT_EQ(find_similar_word(word, flags), "--no-wait") << word;
  EXPECT_EQ(find_similar_word("--Mem", flags), "--mem");
  EXPECT_EQ(find_similar_word("--x", flags), "");
}

}  // namespace
}  // namespace berth
