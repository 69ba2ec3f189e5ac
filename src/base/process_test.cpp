// Tests of process.h: hostile process names, forks, stopped processes, and handles.
#include "base/process.h"

#include <cerrno>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

namespace berth {
namespace {

TEST(Process, stat_of_a_fork_with_an_awkward_name) {
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_NAME, "a) R 1 (b\n");
    const auto stat = read_process_stat(::getpid());
    const bool right = stat && stat->name == "a) R 1 (b\n" && stat->parent == parent;
    ::_exit(right && !stat->ran_exec ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(read_process_stat(child));
}

TEST(Process, stat_of_a_program) {
  const auto stat = read_process_stat(::getpid());
  ASSERT_TRUE(stat);
  EXPECT_TRUE(stat->ran_exec);
  EXPECT_EQ(stat->parent, ::getppid());
}

TEST(Process, stopped_by_a_signal_and_not_by_a_tracer) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  EXPECT_FALSE(read_process_stat(child)->stopped);
  ASSERT_EQ(::kill(child, SIGSTOP), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  EXPECT_TRUE(read_process_stat(child)->stopped);
  ASSERT_EQ(::kill(child, SIGCONT), 0);
  ASSERT_EQ(::waitpid(child, &status, WCONTINUED), child);
  ASSERT_EQ(::ptrace(PTRACE_ATTACH, child, nullptr, nullptr), 0);
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  EXPECT_FALSE(read_process_stat(child)->stopped) << "strace does this at each system call";
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, &status, 0), child);
}

TEST(Process, handle_knows_the_end) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  const UniqueFd handle = open_process(child);
  ASSERT_TRUE(handle);
  EXPECT_FALSE(has_ended(handle));
  EXPECT_EQ(send_signal(handle, SIGKILL), 0);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(has_ended(handle)) << "a zombie has ended";
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(has_ended(handle));
  EXPECT_EQ(send_signal(handle, 0), -1);
  EXPECT_EQ(errno, ESRCH);
  EXPECT_FALSE(open_process(child));
}

}  // namespace
}  // namespace berth
