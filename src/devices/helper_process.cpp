// Forking, and what the child does first; see helper_process.h.
#include "devices/helper_process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/process.h"

namespace berth {
namespace {

constexpr int kSocket = 3;  // the child's only descriptor beside 0, 1, 2

// Leaves the child with nothing of the parent's but the socket. A descriptor that a hung child kept
// open would keep its other end waiting: the reader of `berth status | cat`, or a whole lease.
void shed_descriptors(int socket) {
  const int moved = ::fcntl(socket, F_DUPFD, kSocket + 1);  // out of the way of 0 to 3
  const int null = ::open("/dev/null", O_RDWR);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, fd);
  ::dup2(moved, kSocket);
  ::close_range(kSocket + 1, ~0U, 0);
}

// The parent's handlers first: they must not run here once the mask is gone.
void restore_signals() {
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

void become_helper(const char* name, int socket, pid_t parent) {
  // A parent that is killed while the driver hangs must not leave us behind.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(0);
  ::setsid();  // Ctrl-C is the parent's business
  shed_descriptors(socket);
  restore_signals();
  ::prctl(PR_SET_NAME, name);
}

}  // namespace

Result<HelperProcess> start_helper(const char* name, const std::function<void(int)>& work) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return fail(ErrorKind::no_driver,
                fmt::format("the driver cannot be asked: {}", std::strerror(errno)));
  }
  UniqueFd mine(ends[0]);
  const UniqueFd theirs(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) {
    return fail(ErrorKind::no_driver,
                fmt::format("the driver cannot be asked, no process can be started: {}; see ulimit "
                            "-u",
                            std::strerror(errno)));
  }
  if (child != 0) return HelperProcess{child, std::move(mine)};
  become_helper(name, theirs.get(), parent);
  try {
    work(kSocket);
  } catch (...) {  // never into the parent's code, of which this process has a copy
    ::_exit(1);
  }
  ::_exit(0);
}

void end_helper(const UniqueFd& handle) {
  constexpr int kPatienceMs = 200;
  if (!handle) return;
  send_signal(handle, SIGKILL);
  pollfd entry{handle.get(), POLLIN, 0};
  ::poll(&entry, 1, kPatienceMs);
  siginfo_t unused{};
  ::waitid(P_PIDFD, static_cast<id_t>(handle.get()), &unused, WEXITED | WNOHANG);
}

bool send_all(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto written = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

bool wait_readable(int fd, std::chrono::steady_clock::time_point until, int interrupt) {
  using Clock = std::chrono::steady_clock;
  // To be put to sleep and woken again takes longer than a driver that is awake takes to answer.
  // Who yields does not keep the other side from running, even on one processor.
  constexpr std::chrono::microseconds kQuick(200);
  const auto quick = std::min(until, Clock::now() + kQuick);
  for (;;) {
    const auto now = Clock::now();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now).count();
    const bool asleep = now >= quick;
    std::array<pollfd, 2> watched{{{fd, POLLIN, 0}, {interrupt, POLLIN, 0}}};
    const int timeout = asleep ? static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000)) : 0;
    const int ready = ::poll(watched.data(), watched.size(), timeout);
    if (ready > 0) return watched[0].revents != 0;
    if (left <= 0) return false;
    if (!asleep) ::sched_yield();
  }
}

}  // namespace berth
