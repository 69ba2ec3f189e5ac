// Ssh with a program in place of ssh that does what real ones do under load.
#include "cli/ssh.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <sys/time.h>
#include <unistd.h>

namespace berth {
namespace {

class SshTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
    path_before_ = std::getenv("PATH");
    ::setenv("PATH", (folder_ + ":" + path_before_).c_str(), 1);
    ::sigemptyset(&mask_);
  }
  void TearDown() override {
    ::setenv("PATH", path_before_.c_str(), 1);
    std::filesystem::remove_all(folder_);
  }

  // Runs this shell script in place of ssh.
  Result<Ssh::Output> run(const std::string& script, const std::string& input = "") const {
    std::ofstream(folder_ + "/ssh") << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(folder_ + "/ssh", std::filesystem::perms::owner_all);
    auto ssh = Ssh::to("there", mask_);
    return ssh->run("command", input);
  }

 private:
  std::string folder_ = "/tmp/berth-ssh-test-XXXXXX";
  std::string path_before_;
  sigset_t mask_{};
};

const std::string kLarge(1 << 20, 'x');

// More than a pipe takes on both sides: a write that waits for the reader would never end.
TEST_F(SshTest, a_command_may_write_much_before_it_reads) {
  const auto done = run("head -c 500000 /dev/zero; head -c 500000 /dev/zero >&2; wc -c", kLarge);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(done->code, 0);
  EXPECT_EQ(done->output.size(), std::size_t{64} << 10);
  const auto echoed = run("cat", kLarge);
  ASSERT_TRUE(echoed) << echoed.error().message;
  EXPECT_EQ(echoed->output.size(), std::size_t{64} << 10);
}

TEST_F(SshTest, signals_lose_none_of_the_input) {
  struct sigaction handler {};
  struct sigaction before {};
  handler.sa_handler = [](int /*number*/) {};  // without SA_RESTART
  ASSERT_EQ(::sigaction(SIGALRM, &handler, &before), 0);
  const itimerval often{{0, 500}, {0, 500}};
  ::setitimer(ITIMER_REAL, &often, nullptr);
  const auto done = run("sleep 0.1; wc -c", kLarge);
  const itimerval never{};
  ::setitimer(ITIMER_REAL, &never, nullptr);
  ::sigaction(SIGALRM, &before, nullptr);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(done->output, std::to_string(kLarge.size()) + "\n");
}

TEST_F(SshTest, input_that_was_not_read_is_not_taken_for_sent) {
  EXPECT_FALSE(run("exit 0", kLarge));
  const auto failed = run("echo no >&2; exit 3", kLarge);
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->code, 3);
  EXPECT_EQ(failed->errors, "no\n");
}

TEST_F(SshTest, nothing_of_this_host_is_forwarded) {
  const auto done = run("echo \"$*\"");
  ASSERT_TRUE(done);
  for (const char* option :
       {"StrictHostKeyChecking=yes", "ForwardAgent=no", "ForwardX11=no", "ClearAllForwardings=yes",
        "PermitLocalCommand=no", "Tunnel=no", "-k ", "-- there command"}) {
    EXPECT_NE(done->output.find(option), std::string::npos) << option;
  }
}

}  // namespace
}  // namespace berth
