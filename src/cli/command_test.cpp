// Tests of the suggestion for an unknown command.
#include "cli/command.h"

#include <gtest/gtest.h>
#include <string>

namespace berth {
namespace {

bool suggests(const char* name, const std::string& command) {
  const std::string message = unknown_command_error(name).message;
  return message.find("did you mean 'berth " + command + "'?") != std::string::npos;
}

TEST(UnknownCommand, suggests_the_nearest_command) {
  EXPECT_TRUE(suggests("statsu", "status"));
  EXPECT_TRUE(suggests("rup", "run"));  // two letters from top
  EXPECT_TRUE(suggests("tup", "top"));  // two letters from run and setup
  EXPECT_TRUE(suggests("lgo", "log"));
}

TEST(UnknownCommand, suggests_a_detached_job_for_the_submission_of_other_tools) {
  EXPECT_TRUE(suggests("sbatch", "run -d"));
  EXPECT_TRUE(suggests("submit", "run -d"));
}

TEST(UnknownCommand, suggests_nothing_if_no_command_is_near) {
  for (const std::string& name : {std::string("xyzzy"), std::string(1000, 'x')}) {
    EXPECT_EQ(unknown_command_error(name).message.find("did you mean"), std::string::npos);
  }
}

}  // namespace
}  // namespace berth
