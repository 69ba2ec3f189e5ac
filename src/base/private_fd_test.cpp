// Tests of private_fd.h: a forked child inherits a descriptor only after share().
#include "base/private_fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <utility>

namespace berth {
namespace {

UniqueFd open_null() {
  return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

bool fork_has(int fd) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::fcntl(fd, F_GETFD) >= 0 ? 1 : 0);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WEXITSTATUS(status) == 1;
}

TEST(PrivateFd, is_empty_in_a_fork_and_closes_nothing_there) {
  PrivateFd one = open_null();
  const int number = one.get();
  const pid_t child = ::fork();
  if (child == 0) {
    const bool empty = !one && one.get() < 0;
    const bool reused = ::dup2(::open("/dev/null", O_RDONLY | O_CLOEXEC), number) == number;
    one.reset();
    const bool open = ::fcntl(number, F_GETFD) >= 0;
    one = open_null();  // belongs to the child
    ::_exit(empty && reused && open && one && !std::move(one).share() == false ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(one.get(), number);
}

TEST(PrivateFd, a_fork_does_not_get_it) {
  const UniqueFd inheritable = open_null();
  const PrivateFd one = open_null();
  const PrivateFd another = open_null();
  EXPECT_TRUE(fork_has(inheritable.get()));
  EXPECT_FALSE(fork_has(one.get()));
  EXPECT_FALSE(fork_has(another.get()));
  EXPECT_GE(::fcntl(one.get(), F_GETFD), 0);  // the parent keeps it
}

TEST(PrivateFd, a_fork_gets_it_once_it_is_shared) {
  PrivateFd one = open_null();
  const int number = one.get();
  const UniqueFd shared = std::move(one).share();
  EXPECT_EQ(shared.get(), number);
  EXPECT_TRUE(fork_has(number));
}

TEST(PrivateFd, a_number_that_is_used_again_is_not_private) {
  PrivateFd one = open_null();
  const int number = one.get();
  one.reset();
  const UniqueFd other = open_null();
  ASSERT_EQ(other.get(), number);
  EXPECT_TRUE(fork_has(number));
}

TEST(PrivateFd, it_stays_private_when_it_moves) {
  PrivateFd one = open_null();
  PrivateFd other = open_null();
  const int number = one.get();
  other = std::move(one);
  EXPECT_FALSE(fork_has(number));
}

}  // namespace
}  // namespace berth
