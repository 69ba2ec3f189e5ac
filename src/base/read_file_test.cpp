// Tests of read_file.h: sizes around those of its buffer, and words.
#include "base/read_file.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

namespace berth {
namespace {

TEST(ReadToEnd, reads_files_of_every_size) {
  for (const std::size_t size : {0UL, 1UL, 4095UL, 4096UL, 4097UL, 8192UL, 100'000UL}) {
    const UniqueFd file(::memfd_create("berth-test", MFD_CLOEXEC));
    const std::string text(size, 'x');
    ASSERT_EQ(::pwrite(file.get(), text.data(), size, 0), static_cast<ssize_t>(size));
    EXPECT_EQ(read_to_end(file.get(), size), text) << size;
    ASSERT_EQ(::lseek(file.get(), 0, SEEK_SET), 0);
    if (size > 0) {
      EXPECT_EQ(read_to_end(file.get(), size - 1), std::nullopt) << size;
    }
  }
}

TEST(TakeWord, takes_words_until_none_is_left) {
  std::string_view text = "  36 27\t0:21\n/ ";
  EXPECT_EQ(take_word(text), "36");
  EXPECT_EQ(take_word(text), "27");
  EXPECT_EQ(take_word(text), "0:21");
  EXPECT_EQ(take_word(text), "/");
  EXPECT_EQ(take_word(text), "");
  EXPECT_EQ(take_word(text), "");
}

}  // namespace
}  // namespace berth
