// Unit tests of lock.h, base/interrupter.h and lock_holder.h: waiting for the lock times out
// whatever the program does with signals, and leaves its signal handling unchanged.
#include "harbour/lock.h"

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/interrupter.h"
#include "base/unique_fd.h"
#include "harbour/lock_holder.h"

namespace berth {
namespace {

using namespace std::chrono_literals;

void own_handler(int /*number*/) {}

// For each real-time signal: the handler, and whether this thread blocks the signal.
using Actions = std::vector<std::pair<void (*)(int), bool>>;

Actions actions() {
  Actions all;
  sigset_t blocked;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  for (int number = SIGRTMIN; number <= SIGRTMAX; ++number) {
    struct sigaction now {};
    ::sigaction(number, nullptr, &now);
    all.emplace_back(now.sa_handler, ::sigismember(&blocked, number) == 1);
  }
  return all;
}

void set_all(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  for (int number = SIGRTMIN; number <= SIGRTMAX; ++number) ::sigaction(number, &action, nullptr);
}

void block_all(int how) {
  sigset_t set;
  ::sigfillset(&set);
  ::pthread_sigmask(how, &set, nullptr);
}

class LockTest : public testing::Test {
 protected:
  LockTest() {
    std::array<char, 32> pattern{"/tmp/lock-test-XXXXXX"};
    path_ = ::mkdtemp(pattern.data());
    held_ = open();
    EXPECT_EQ(::flock(held_.get(), LOCK_EX), 0);
  }
  ~LockTest() override {
    set_all(SIG_DFL);
    ::rmdir(path_.c_str());
  }

  UniqueFd open() const {
    return UniqueFd(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  // The wait times out, and signal handling is the same as before.
  void expect_lock_timeout() const {
    const auto before = actions();
    const UniqueFd own = open();
    const auto locked = lock_directory(own.get(), LockMode::exclusive, {500ms, {}, {}});
    ASSERT_FALSE(locked);
    EXPECT_EQ(locked.error().kind, ErrorKind::io);
    EXPECT_EQ(actions(), before);
  }

  std::string path_;
  UniqueFd held_;
};

TEST_F(LockTest, a_timeout_leaves_no_signal_handler) {
  expect_lock_timeout();
}

TEST_F(LockTest, the_lock_times_out_where_the_program_handles_the_signals) {
  set_all(own_handler);
  expect_lock_timeout();
}

TEST_F(LockTest, the_lock_times_out_where_the_program_handles_one_of_them) {
  struct sigaction action {};
  action.sa_handler = own_handler;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGRTMAX - 2, &action, nullptr);
  expect_lock_timeout();
}

TEST_F(LockTest, the_lock_times_out_where_the_program_ignores_the_signals) {
  set_all(SIG_IGN);
  expect_lock_timeout();
}

TEST_F(LockTest, the_lock_times_out_where_the_thread_blocks_all_signals) {
  block_all(SIG_BLOCK);
  expect_lock_timeout();
  block_all(SIG_UNBLOCK);
}

TEST_F(LockTest, a_pending_signal_of_the_program_stays_pending) {
  block_all(SIG_BLOCK);
  ::raise(SIGRTMAX - 2);
  expect_lock_timeout();
  sigset_t pending;
  ::sigpending(&pending);
  EXPECT_EQ(::sigismember(&pending, SIGRTMAX - 2), 1);
  ::signal(SIGRTMAX - 2, SIG_IGN);
  block_all(SIG_UNBLOCK);
}

TEST_F(LockTest, a_released_lock_is_acquired_without_signals_too) {
  set_all(SIG_IGN);
  const UniqueFd own = open();
  const LockOptions lock_options{60s, {}, [&] {
                                   held_.reset();  // called while lock_directory() waits
                                   return false;
                                 }};
  EXPECT_TRUE(lock_directory(own.get(), LockMode::exclusive, lock_options));
}

TEST_F(LockTest, threads_and_forks_at_once_leave_no_handler) {
  const auto before = actions();
  std::atomic<int> waiting = 4;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      // No check of handlers here: other threads may still wait. The check follows below.
      const UniqueFd own = open();
      EXPECT_FALSE(lock_directory(own.get(), LockMode::exclusive, {500ms, {}, {}}));
      --waiting;
    });
  }
  int wrong = 0;
  while (waiting > 0) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(actions() == before ? 0 : 1);
    int status = 0;
    ::waitpid(child, &status, 0);
    wrong += WEXITSTATUS(status);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0) << "children that have a handler of their parent's threads";
  EXPECT_EQ(actions(), before);
}

TEST_F(LockTest, a_fork_of_the_thread_that_waits_can_end_its_interrupter) {
  const auto before = actions();
  int status = 0;
  {
    const Interrupter one;
    ASSERT_TRUE(one);
    const pid_t child = ::fork();
    if (child == 0) {
      const bool own = static_cast<bool>(one);
      one.~Interrupter();
      ::_exit(!own && actions() == before ? 0 : 1);
    }
    ::waitpid(child, &status, 0);
  }
  EXPECT_EQ(status, 0);
  EXPECT_EQ(actions(), before);
}

TEST_F(LockTest, the_holder_is_named) {
  const LockHolder holder = find_lock_holder(held_.get());
  EXPECT_EQ(holder.verified_pid, ::getpid());
  EXPECT_NE(holder.name.find("pid " + std::to_string(::getpid())), std::string::npos);
}

TEST_F(LockTest, a_holder_that_inherited_the_lock_is_found) {
  held_.reset();
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  const pid_t locker = ::fork();
  if (locker == 0) {
    const UniqueFd own = open();
    ::flock(own.get(), LOCK_EX);
    const pid_t inheritor = ::fork();
    if (inheritor == 0) {
      for (;;) ::pause();
    }
    (void)!::write(ready[1], &inheritor, sizeof inheritor);
    ::_exit(0);
  }
  ::waitpid(locker, nullptr, 0);
  pid_t inheritor = 0;
  ASSERT_EQ(::read(ready[0], &inheritor, sizeof inheritor), static_cast<ssize_t>(sizeof inheritor));
  const UniqueFd own = open();
  EXPECT_EQ(find_lock_holder(own.get()).verified_pid, inheritor);
  ::kill(inheritor, SIGKILL);
  ::close(ready[0]);
  ::close(ready[1]);
}

// Otherwise each client of a long line would read the descriptors of all processes.
TEST_F(LockTest, a_lock_that_processes_take_in_turn_has_no_holder) {
  constexpr std::size_t kProcesses = 8;
  held_.reset();
  std::array<pid_t, kProcesses> children{};
  for (pid_t& child : children) {
    child = ::fork();
    if (child != 0) continue;
    const UniqueFd own = open();
    for (;;) {
      ::flock(own.get(), LOCK_EX);
      ::usleep(5'000);
      ::flock(own.get(), LOCK_UN);
      ::usleep(5'000);  // the kernel lets the process take the lock again before the others
    }
  }
  const UniqueFd own = open();
  const LockHolder holder = find_lock_holder(own.get());
  EXPECT_TRUE(holder.in_turn) << holder.name;
  EXPECT_FALSE(holder.verified_pid);
  for (const pid_t child : children) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
}

}  // namespace
}  // namespace berth
