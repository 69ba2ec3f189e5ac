// Tests Ssh with shell scripts in place of ssh that behave like a real one under load.
#include "cluster/remote/ssh.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/unique_fd.h"

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
  Result<Ssh::CommandOutput> run(const std::string& script, const std::string& input = "",
                                 const Ssh::RunLimits& limits = {}) const {
    std::ofstream(folder_ + "/ssh") << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(folder_ + "/ssh", std::filesystem::perms::owner_all);
    auto ssh = Ssh::create("there", mask_);
    return ssh->run("command", input, limits);
  }

  // Whether the script that has written its PID into the file `pid` has exited.
  bool has_ended() const {
    pid_t pid = 0;
    std::ifstream(file("pid")) >> pid;
    return pid > 0 && ::kill(pid, 0) != 0 && errno == ESRCH;
  }

  std::string file(const std::string& name) const { return folder_ + "/" + name; }

 private:
  std::string folder_ = "/tmp/berth-ssh-test-XXXXXX";
  std::string path_before_;
  sigset_t mask_{};
};

const std::string kLarge(1 << 20, 'x');

// Both sides write more than a pipe has room for: with a blocking write neither would ever read.
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

TEST_F(SshTest, unread_input_is_an_error_unless_the_command_failed) {
  EXPECT_FALSE(run("exit 0", kLarge));
  const auto failed = run("echo no >&2; exit 3", kLarge);
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->code, 3);
  EXPECT_EQ(failed->errors, "no\n");
}

// Like a host that accepts the connection and then hangs.
TEST_F(SshTest, a_command_that_does_not_end_is_killed_at_the_limit) {
  Ssh::RunLimits limits;
  limits.timeout = std::chrono::seconds(2);
  for (const char* hangs : {"exec sleep 1000", "exec sleep 1000 >&-"}) {
    const auto done = run("echo $$ > " + file("pid") + "; " + hangs, kLarge, limits);
    ASSERT_FALSE(done);
    for (const char* part : {"ssh", "there", "2s"}) {
      EXPECT_NE(done.error().message.find(part), std::string::npos) << done.error().message;
    }
    EXPECT_TRUE(has_ended());
  }
}

TEST_F(SshTest, a_command_is_killed_when_the_caller_is_interrupted) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  int asked = 0;
  Ssh::RunLimits limits;
  limits.interrupt_fd = ends[0];
  limits.is_interrupted = [&] {
    char byte = 0;
    EXPECT_EQ(::read(ends[0], &byte, 1), 1);
    ++asked;
    return byte == 'i';  // like SIGCHLD, other bytes do not interrupt
  };
  const std::string fifo = file("interrupt");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  std::thread passes_on([&] {
    char byte = 0;
    const UniqueFd from(::open(fifo.c_str(), O_RDONLY));
    while (::read(from.get(), &byte, 1) == 1) EXPECT_EQ(::write(ends[1], &byte, 1), 1);
  });
  const auto done =
      run("echo $$ > " + file("pid") + "; printf xxi > " + fifo + "; exec sleep 1000", "", limits);
  passes_on.join();
  ::close(ends[0]);
  ::close(ends[1]);
  ASSERT_FALSE(done);
  EXPECT_NE(done.error().message.find("interrupted"), std::string::npos) << done.error().message;
  EXPECT_TRUE(has_ended());
  EXPECT_EQ(asked, 3);
}

// Without a descriptor for the process, there is no event when it exits.
TEST_F(SshTest, no_child_is_left_behind_where_descriptors_are_used_up) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(run("exit 0"));    // creates the script
  std::vector<UniqueFd> filled;  // leaves only higher numbers free
  while (filled.size() < 64) filled.emplace_back(::dup(STDERR_FILENO));
  const auto next = static_cast<rlim_t>(filled.back().get()) + 1;
  for (rlim_t more = 0; more < 8; ++more) {
    const rlimit few{next + more, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    const auto done = run("exit 0");
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_EQ(done.has_value(), more == 7) << more;  // six for pipes, one for the process
    EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << more;
  }
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
