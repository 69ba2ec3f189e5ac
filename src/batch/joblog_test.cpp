// Tests of reading and writing joblogs.
#include "batch/joblog.h"

#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>
#include <unistd.h>

namespace berth::batch {
namespace {

using Reference = nlohmann::json;

class JoblogTest : public testing::Test {
 protected:
  ~JoblogTest() override {
    ::unlink(path_.c_str());
    ::rmdir(folder_.c_str());
  }

  std::string text() const {
    std::stringstream all;
    all << std::ifstream(path_).rdbuf();
    return all.str();
  }

  void add(std::string_view more) const { std::ofstream(path_, std::ios::app) << more; }

  const BatchLine line_{2, 3, "train \xff", "k2"};
  const TimePoint now_{};
  // ctest runs each test in its own process, and several at once.
  const std::string path_ = fmt::format("{}berth-joblog-{}.jsonl", testing::TempDir(), ::getpid());
  const std::string folder_ = fmt::format("{}berth-joblog-{}", testing::TempDir(), ::getpid());
  const LogFolder logs_ = LogFolder::open(folder_).value();
};

TEST_F(JoblogTest, remembers_what_succeeded_the_last_time) {
  {
    auto log = Joblog::open(path_, logs_).value();
    log.write_begin(2, now_);
    log.write_line({1, 1, "a", "k1"}, {.code = 0});
    log.write_line(line_, {.code = 1});
    log.write_end({1, 1, 0, 0}, now_);
  }
  auto log = Joblog::open(path_, logs_).value();
  EXPECT_TRUE(log.content().is_joblog);
  EXPECT_FALSE(log.content().finished);
  EXPECT_EQ(log.content().total, 2U);
  EXPECT_EQ(log.content().lines, (std::map<std::string, bool>{{"k1", true}, {"k2", false}}));
  log.write_line(line_, {.code = 0});
  log.write_end({2, 0, 0, 0}, now_);
  EXPECT_EQ(parse_joblog(text()).succeeded(), 2U);
  EXPECT_TRUE(parse_joblog(text()).finished);
  log.clear();
  EXPECT_EQ(text(), "");
  EXPECT_FALSE(log.content().is_joblog);
}

TEST_F(JoblogTest, a_torn_line_loses_only_itself) {
  const std::string whole = format_joblog_line(line_, {.code = 0});
  add(format_joblog_line({1, 1, "a", "k1"}, {.code = 0}) + whole.substr(0, whole.size() / 2));
  auto log = Joblog::open(path_, logs_).value();
  EXPECT_EQ(log.content().succeeded(), 1U);
  log.write_line({3, 4, "c", "k3"}, {.code = 0});
  EXPECT_EQ(parse_joblog(text()).lines, (std::map<std::string, bool>{{"k1", true}, {"k3", true}}));
}

TEST_F(JoblogTest, only_one_batch_can_open_a_joblog) {
  const auto log = Joblog::open(path_, logs_).value();
  const auto second = Joblog::open(path_, logs_);
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message.find("another batch"), std::string::npos);
}

TEST_F(JoblogTest, refuses_a_file_that_is_not_a_joblog) {
  for (const std::string_view content :
       {"epoch,loss\n1,2\n", "{\"event\": 5}\n", "[[[[[", "\0\n"}) {
    ::unlink(path_.c_str());
    add(content);
    if (content.empty()) continue;
    EXPECT_FALSE(Joblog::open(path_, logs_));
    EXPECT_EQ(text(), content);
  }
}

// With quadratic time this would take minutes, and the test's time limit would end it.
TEST_F(JoblogTest, many_keys_take_linear_time) {
  std::string text = "{\"event\":\"begin\"";
  for (int i = 0; i < 200'000; ++i) text += ",\"" + std::to_string(i) + "\":1";
  EXPECT_TRUE(parse_joblog(text + "}\n").is_joblog);
}

TEST_F(JoblogTest, writes_how_a_line_ended) {
  const Reference killed =
      Reference::parse(format_joblog_line(line_, {.code = 137, .attempts = 2, .gpus = "0,1"}));
  EXPECT_EQ(killed["signal"], 9);
  EXPECT_EQ(killed["attempts"], 2);
  EXPECT_EQ(killed["gpus"], "0,1");
  EXPECT_EQ(killed["lease"], nullptr);
  EXPECT_EQ(killed["succeeded"], false);
  // A job that is stopped by a time limit may exit with 0, but it has not done all of its work.
  const Reference late =
      Reference::parse(format_joblog_line(line_, {.code = 0, .timed_out = true}));
  EXPECT_EQ(late["succeeded"], false);
}

}  // namespace
}  // namespace berth::batch
