// Unit tests of job_output.h and job_wait.h: holes, last lines, and the exit code of several jobs.
#include "run/job_output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "run/job_wait.h"

namespace berth {
namespace {

constexpr off_t kMiB = 1 << 20;

class OutputReaderTest : public testing::Test {
 protected:
  OutputReaderTest() : path_(testing::TempDir() + "berth-output-XXXXXX") {
    file_ = UniqueFd(::mkstemp(path_.data()));
  }
  ~OutputReaderTest() override { ::unlink(path_.c_str()); }

  void write(std::string_view text) { ASSERT_TRUE(write_all(file_.get(), text)); }
  void punch(off_t begin, off_t end) {
    const int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    if (::fallocate(file_.get(), mode, begin, end - begin) != 0)
      GTEST_SKIP() << "this file system has no holes";
  }
  OutputReader open() { return std::move(*OutputReader::open(path_)); }

  // The text from the reader's position on, with the size of each hole in brackets.
  static std::string read_all(OutputReader& reader) {
    std::string text;
    while (const auto piece = reader.read_next())
      text += piece->missing > 0 ? "[" + std::to_string(piece->missing) + "]" : piece->bytes;
    return text;
  }
  std::string last(std::size_t lines) {
    OutputReader reader = open();
    reader.seek_last_lines(lines);
    return read_all(reader);
  }

  std::string path_;
  UniqueFd file_;
};

TEST_F(OutputReaderTest, the_last_bytes) {
  write("one\ntwo");
  const auto last_bytes = [this](std::size_t bytes) {
    OutputReader reader = open();
    reader.seek_last_bytes(bytes);
    return read_all(reader);
  };
  EXPECT_EQ(last_bytes(0), "");
  EXPECT_EQ(last_bytes(5), "e\ntwo");
  EXPECT_EQ(last_bytes(7), "one\ntwo");
  EXPECT_EQ(last_bytes(100), "one\ntwo");
}

TEST_F(OutputReaderTest, the_last_lines) {
  EXPECT_EQ(last(3), "");
  write("one\n\ntwo\nthree");
  EXPECT_EQ(last(0), "");
  EXPECT_EQ(last(1), "three");
  EXPECT_EQ(last(2), "two\nthree");
  EXPECT_EQ(last(3), "\ntwo\nthree");
  EXPECT_EQ(last(4), "one\n\ntwo\nthree");
  EXPECT_EQ(last(5), "one\n\ntwo\nthree");
  write("\n");
  EXPECT_EQ(last(1), "three\n");
  write("\n");
  EXPECT_EQ(last(1), "\n");
}

TEST_F(OutputReaderTest, lines_that_are_longer_than_a_block) {
  const std::string line(200'000, 'x');
  write(line + "\n" + line + "\n");
  EXPECT_EQ(last(1), line + "\n");
  EXPECT_EQ(last(2), line + "\n" + line + "\n");
}

TEST_F(OutputReaderTest, what_is_written_later_is_read_later) {
  OutputReader reader = open();
  EXPECT_EQ(read_all(reader), "");
  write("one");
  EXPECT_EQ(read_all(reader), "one");
  EXPECT_EQ(read_all(reader), "");
  write("two");
  EXPECT_EQ(read_all(reader), "two");
  // The job has truncated its output.
  ASSERT_EQ(::ftruncate(file_.get(), 0), 0);
  ::lseek(file_.get(), 0, SEEK_SET);
  write("new");
  EXPECT_EQ(read_all(reader), "new");
}

TEST_F(OutputReaderTest, holes_are_left_out) {
  const std::string block(kMiB, 'x');
  for (const char* end : {"a\n", "b\n", "c\n", "d\n"})
    write(block.substr(0, block.size() - 2) + end);
  punch(kMiB, 3 * kMiB);
  OutputReader reader = open();
  const std::string text = read_all(reader);
  EXPECT_EQ(text.size(), 2 * block.size() + std::string_view("[2097152]").size());
  EXPECT_NE(text.find("a\n[2097152]x"), std::string::npos);
  EXPECT_TRUE(text.ends_with("xd\n"));
  EXPECT_EQ(last(1).size(), block.size());
  EXPECT_TRUE(last(2) == text);
  // A hole that is made while the file is read.
  OutputReader slow = open();
  ASSERT_TRUE(slow.read_next());
  punch(0, kMiB);
  EXPECT_EQ(read_all(slow).substr(0, 1), "[");
}

TEST(JobOutcome, the_first_job_that_has_not_succeeded_counts) {
  const JobOutcome good{0, ""};
  const JobOutcome bad{3, ""};
  const JobOutcome unknown{std::nullopt, "killed"};
  EXPECT_EQ(exit_code(std::vector<JobOutcome>{}), 0);
  EXPECT_EQ(exit_code({good, good}), 0);
  EXPECT_EQ(exit_code({good, bad, unknown}), 3);
  EXPECT_EQ(exit_code({good, unknown, bad}), kExitUnknown);
}

}  // namespace
}  // namespace berth
