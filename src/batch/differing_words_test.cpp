// Tests of finding the words in which commands differ.
#include "batch/differing_words.h"

#include <gtest/gtest.h>

namespace berth::batch {
namespace {

using Texts = std::vector<std::string>;

Texts short_forms(const Texts& commands, Charset charset = Charset::ascii) {
  const auto lines = make_lines(commands).value();
  const DifferingWords words(lines);
  Texts all;
  for (const BatchLine& line : lines) all.push_back(words.shorten(line.command, charset));
  return all;
}

TEST(DifferingWords, leave_out_what_all_commands_have) {
  EXPECT_EQ(short_forms({"python a.py --lr 1 --epochs 9 --seed=1 >log",
                         "python a.py --lr 2 --epochs 9 --seed=2 >log",
                         "python a.py --lr 1 --epochs 9 --seed=3 >log"}),
            (Texts{"... --lr 1 ... --seed=1 ...", "... --lr 2 ... --seed=2 ...",
                   "... --lr 1 ... --seed=3 ..."}));
  EXPECT_EQ(short_forms({"a  1\tb", "a 2 b"}, Charset::utf8), (Texts{"… 1 …", "… 2 …"}));
}

TEST(DifferingWords, a_command_of_another_length_is_not_compared) {
  EXPECT_EQ(short_forms({"python prepare.py", "python a.py x 1", "python a.py x 2"}),
            (Texts{"python prepare.py", "... 1", "... 2"}));
}

TEST(DifferingWords, a_command_without_a_word_of_its_own_stays_whole) {
  EXPECT_EQ(short_forms({"a b", "a b"}), (Texts{"a b", "a b"}));
  const auto lines = make_lines({"a"}).value();
  EXPECT_EQ(DifferingWords(lines).shorten("b c", Charset::ascii), "b c");
}

}  // namespace
}  // namespace berth::batch
