// Tests of find_lease_owner(): real shells call a program that prints the owner it finds.
#include "run/lease_owner.h"

#include <array>
#include <fcntl.h>
#include <fstream>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sstream>
#include <sys/personality.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace berth {
namespace {

enum class AddressLayout { random, fixed };

// The lines that a command prints. The command runs in a session of its own, as a login does.
std::vector<std::string> run_and_read_lines(const std::vector<std::string>& command,
                                            AddressLayout addresses = AddressLayout::random) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::setsid();
    ::setenv("PROBE", BERTH_TEST_LEASE_OWNER_PROBE, 1);
    if (addresses == AddressLayout::fixed) ::personality(ADDR_NO_RANDOMIZE);
    ::dup2(ends[1], STDOUT_FILENO);
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  std::string output;
  std::array<char, 4096> buffer{};
  for (;;) {  // until the last process that holds the pipe ends, background processes included
    const auto got = ::read(ends[0], buffer.data(), buffer.size());
    if (got <= 0) break;
    output.append(buffer.data(), static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  std::vector<std::string> lines;
  std::istringstream stream(output);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Shell code (not for dash) that waits until the parent of the process that runs it is `program`.
std::string until_parent_is(const std::string& program) {
  return "until read -r _ _ _ parent _ </proc/self/stat && read -r name </proc/$parent/comm && "
         "[ \"$name\" = " +
         program + " ]; do :; done; ";
}

class CallingShell : public testing::TestWithParam<const char*> {
 protected:
  // The script's first line of output is the PID that should be found; each other line is a
  // finding.
  void expect_first_pid(const std::vector<std::string>& lines, std::size_t findings) {
    ASSERT_EQ(lines.size(), findings + 1) << testing::PrintToString(lines);
    for (std::size_t i = 1; i < lines.size(); ++i) {
      EXPECT_EQ(lines[i], lines[0] + " " + GetParam()) << "finding " << i;
    }
  }
  std::vector<std::string> run(const std::string& script) {
    return run_and_read_lines({GetParam(), "-c", script});
  }
  // `true` keeps the shell from replacing itself by the program (exec of the last command).
  const std::string probe_ = "\"$PROBE\"; true";
};

TEST_P(CallingShell, is_found_directly) {
  expect_first_pid(run("echo $$; " + probe_), 1);
}

TEST_P(CallingShell, is_found_through_its_forks) {
  expect_first_pid(run("echo $$; ( " + probe_ + " ); ( ( ( " + probe_ + " ); true ); true )"), 2);
  expect_first_pid(run("echo $$; x=$(" + probe_ + "); echo \"$x\""), 1);
  expect_first_pid(run("echo $$; \"$PROBE\" | cat; true | { " + probe_ + "; }"), 2);
  expect_first_pid(run("echo $$; ( " + probe_ + " ) & wait"), 1);
  expect_first_pid(run("echo $$; x=$( ( " + probe_ + " ) | cat; true ); ( echo \"$x\"; true )"), 1);
}

TEST_P(CallingShell, is_found_through_process_substitution) {
  if (std::string_view(GetParam()) == "dash") return;  // dash does not have it
  expect_first_pid(
      run("echo $$; read -r x < <(" + probe_ + "); echo \"$x\"; cat <(" + probe_ + "); true"), 2);
  expect_first_pid(run("echo $$; while read -r x; do echo \"$x\"; done < <(" + probe_ + ")"), 1);
  // Here the parent of the fork becomes cat: probed perhaps before that, and then surely after it.
  expect_first_pid(run("echo $$; cat < <(" + probe_ + "); true"), 1);
  expect_first_pid(run("echo $$; cat < <(" + until_parent_is("cat") + probe_ + "); true"), 1);
}

// A shell that was started by a shell with the same program and arguments is not its fork, even if
// both have the same addresses. (The test compares the second and the third shell: the first shell
// has another environment.)
TEST_P(CallingShell, is_not_confused_with_the_one_that_started_it) {
  std::string path = testing::TempDir() + "berth-binding-XXXXXX";
  ::close(::mkstemp(path.data()));
  std::ofstream(path) << "if [ \"$DEPTH\" != 3 ]; then export DEPTH=$((DEPTH + 1)); " << GetParam()
                      << " " << path << "; true; else echo $$; x=$(" << probe_
                      << "); echo \"$x\"; fi\n";
  expect_first_pid(run_and_read_lines({GetParam(), path}), 1);
  expect_first_pid(run_and_read_lines({GetParam(), path}, AddressLayout::fixed), 1);
  ::unlink(path.c_str());
}

INSTANTIATE_TEST_SUITE_P(LeaseOwnerTest, CallingShell, testing::Values("bash", "dash", "zsh"),
                         [](const auto& shell) { return std::string(shell.param); });

// The fork is still a shell, but its parent has run another program.
TEST(LeaseOwnerTest, a_fork_whose_parent_ran_exec_owns_the_lease) {
  const auto lines =
      run_and_read_lines({"bash", "-c",
                          "( " + until_parent_is("sleep") +
                              "echo $BASHPID bash; \"$PROBE\"; kill $$ ) & exec sleep 1000"});
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[1], lines[0]);
}

// The same; and its parent's parent is a shell with the same arguments that it was not forked from.
TEST(LeaseOwnerTest, a_fork_whose_parent_ran_exec_is_not_attributed_to_its_grandparent) {
  const auto lines = run_and_read_lines(
      {"bash", "-c",
       "if [ -z \"$INNER\" ]; then INNER=1 bash -c \"$BASH_EXECUTION_STRING\"; true; else ( " +
           until_parent_is("sleep") +
           "echo $BASHPID bash; \"$PROBE\"; kill $$ ) & exec sleep 1000; fi"});
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[1], lines[0]);
}

TEST(LeaseOwnerTest, an_orphan_needs_an_explicit_owner) {
  const auto lines = run_and_read_lines(
      {"bash", "-c",
       "OUTER=$$ bash -c 'while read -r _ _ _ parent _ </proc/$$/stat && [ $parent = $OUTER ]; do "
       ":; done; exec \"$PROBE\"' & exit"});
  ASSERT_EQ(lines.size(), 1U);
  for (const char* part : {"error 64 ", "the process that started berth has ended", "--for PID"}) {
    EXPECT_NE(lines[0].find(part), std::string::npos) << lines[0];
  }
}

TEST(LeaseOwnerTest, the_first_process_of_a_container_can_be_the_shell) {
  const std::vector<std::string> inside{"unshare", "-Urpf", "--mount-proc", "bash", "-c"};
  auto command = inside;
  command.emplace_back("echo works");
  if (run_and_read_lines(command).size() != 1)
    GTEST_SKIP() << "PID namespaces are not allowed here";
  command.back() = "\"$PROBE\"; x=$(\"$PROBE\"; true); echo \"$x\"";
  EXPECT_EQ(run_and_read_lines(command), (std::vector<std::string>{"1 bash", "1 bash"}));
}

// Starts a child that waits to be killed.
pid_t start_child() {
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  return child;
}

TEST(LeaseOwnerTest, accepts_an_explicit_process) {
  const pid_t child = start_child();
  const auto owner = find_lease_owner(child);
  ASSERT_TRUE(owner) << owner.error().message;
  EXPECT_EQ(owner->pid, child);
  EXPECT_EQ(owner->name, "berth_lease_tes");  // the kernel stores 15 characters
  pollfd entry{owner->handle.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&entry, 1, 0), 0);
  ::kill(child, SIGKILL);
  EXPECT_EQ(::poll(&entry, 1, 10'000), 1);
  const auto zombie = find_lease_owner(child);
  ASSERT_FALSE(zombie);
  EXPECT_EQ(zombie.error().kind, ErrorKind::usage);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  const auto gone = find_lease_owner(child);
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().kind, ErrorKind::usage);
  EXPECT_NE(gone.error().message.find("there is no such process"), std::string::npos);
}

// Owners with these successors, all children of this process that wait to be killed.
class SuccessionTest : public testing::Test {
 protected:
  SuccessionTest() {
    owners_.first = open_child();
    owners_.successors.push_back(open_child());
    owners_.successors.push_back(open_child());
  }
  ~SuccessionTest() override {
    for (const pid_t child : children_) end(child);
  }
  SuccessionTest(const SuccessionTest&) = delete;
  SuccessionTest& operator=(const SuccessionTest&) = delete;

  static void end(pid_t child) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  LeaseOwners owners_;
  std::vector<pid_t> children_;

 private:
  OwnerProcess open_child() {
    children_.push_back(start_child());
    auto owner = find_lease_owner(children_.back());
    EXPECT_TRUE(owner);
    return std::move(*owner);
  }
};

TEST_F(SuccessionTest, an_unused_lease_goes_on_with_the_next_process_that_runs) {
  end(children_[0]);
  end(children_[1]);
  const auto next = take_next_owner(owners_, owners_.first, false, {});
  ASSERT_TRUE(next);
  EXPECT_EQ(next->pid, children_[2]);
  EXPECT_FALSE(take_next_owner(owners_, *next, false, {}));
}

TEST_F(SuccessionTest, a_used_lease_ends_with_its_owner) {
  end(children_[0]);
  EXPECT_FALSE(take_next_owner(owners_, owners_.first, true, {}));
}

TEST(LeaseOwnerTest, rejects_invalid_pids) {
  for (const pid_t pid : {0, -1, 1 << 30}) {
    const auto owner = find_lease_owner(pid);
    ASSERT_FALSE(owner) << pid;
    EXPECT_EQ(owner.error().kind, ErrorKind::usage);
  }
  std::thread([] {
    const auto owner = find_lease_owner(static_cast<pid_t>(::syscall(SYS_gettid)));
    ASSERT_FALSE(owner) << "a thread is not a process";
    EXPECT_EQ(owner.error().kind, ErrorKind::usage);
  }).join();
}

TEST(LeaseOwnerTest, rejects_another_users_process) {
  const pid_t owner_pid = ::getpid();
  if (::geteuid() != 0) {
    const auto owner = find_lease_owner(1);
    ASSERT_FALSE(owner);
    EXPECT_EQ(owner.error().kind, ErrorKind::permission);
    return;
  }
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr uid_t kNobody = 65534;
    if (::setresuid(kNobody, kNobody, kNobody) != 0) ::_exit(2);
    const auto owner = find_lease_owner(owner_pid);
    ::_exit(!owner && owner.error().kind == ErrorKind::permission ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace berth
