// Starting a helper, and what it does first; see helper_process.h.
#include "devices/helper_process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"
#include "base/text.h"

extern char** environ;

namespace berth {
namespace {

constexpr int kSocket = 3;  // the child's only descriptor beside 0, 1, 2
constexpr const char* kFlag = "--helper";

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

// A parent that is killed while the driver hangs must not leave us behind.
void end_with(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(0);
}

int work_as(const Helper& helper, const HelperArguments& arguments) {
  ::prctl(PR_SET_NAME, helper.name);
  try {
    helper.work(kSocket, arguments);
  } catch (...) {  // never into the parent's code, of which a fork has a copy
    return 1;
  }
  return 0;
}

int fork_helper(const Helper& helper, const HelperArguments& arguments, int socket, pid_t& child) {
  const pid_t parent = ::getpid();
  child = ::fork();
  if (child != 0) return child < 0 ? errno : 0;
  end_with(parent);
  ::setsid();  // Ctrl-C is the parent's business
  shed_descriptors(socket);
  restore_signals();
  ::_exit(work_as(helper, arguments));
}

// What be_helper() reads: NAME --helper PARENT ARGUMENT...
int spawn_helper(const Helper& helper, const HelperArguments& arguments, int socket,
                 const std::string& program, pid_t& child) {
  std::vector<std::string> words{helper.name, kFlag, std::to_string(::getpid())};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const UniqueFd moved(::fcntl(socket, F_DUPFD_CLOEXEC, kSocket + 1));  // out of the way of 0 to 3
  if (!moved) return errno;
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    ::posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
  }
  ::posix_spawn_file_actions_adddup2(&actions, moved.get(), kSocket);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, kSocket + 1);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  sigset_t set;
  ::sigfillset(&set);
  ::posix_spawnattr_setsigdefault(&attributes, &set);
  ::sigemptyset(&set);
  ::posix_spawnattr_setsigmask(&attributes, &set);
  const int problem =
      ::posix_spawn(&child, program.c_str(), &actions, &attributes, argv.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  return problem;
}

}  // namespace

Result<HelperProcess> start_helper(const Helper& helper, const HelperArguments& arguments,
                                   const std::string& program) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return fail(ErrorKind::no_driver,
                fmt::format("the driver cannot be asked: {}", std::strerror(errno)));
  }
  UniqueFd mine(ends[0]);
  const UniqueFd theirs(ends[1]);
  pid_t child = -1;
  const int problem = program.empty()
                          ? fork_helper(helper, arguments, theirs.get(), child)
                          : spawn_helper(helper, arguments, theirs.get(), program, child);
  if (problem == 0) return HelperProcess{child, std::move(mine)};
  return fail(ErrorKind::no_driver,
              problem == ENOENT
                  ? fmt::format("the driver cannot be asked: {} is not there; install berth again",
                                in_quotes(program))
                  : fmt::format("the driver cannot be asked, no process can be started: {}; see "
                                "ulimit -u",
                                std::strerror(problem)));
}

bool is_helper(int argc, const char* const* argv) {
  return argc > 2 && std::string_view(argv[1]) == kFlag;
}

int be_helper(int argc, const char* const* argv, const std::vector<Helper>& helpers) {
  pid_t parent = 0;
  const std::string_view number = argv[2];
  std::from_chars(number.data(), number.data() + number.size(), parent);
  end_with(parent);
  for (const Helper& helper : helpers) {
    if (std::string_view(argv[0]) == helper.name) return work_as(helper, {argv + 3, argv + argc});
  }
  return 1;
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

bool wait_readable(int fd, std::chrono::steady_clock::time_point until, int interrupt,
                   std::chrono::microseconds awake) {
  using Clock = std::chrono::steady_clock;
  const auto quick = std::min(until, Clock::now() + awake);
  for (;;) {
    const auto now = Clock::now();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now).count();
    const bool asleep = now >= quick;
    std::array<pollfd, 2> watched{{{fd, POLLIN, 0}, {interrupt, POLLIN, 0}}};
    const int timeout = asleep ? static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000)) : 0;
    const int ready = ::poll(watched.data(), watched.size(), timeout);
    if (ready > 0) return watched[0].revents != 0;
    if (left <= 0) return false;
    // Who yields does not keep the other side from running, even on one processor.
    if (!asleep) ::sched_yield();
  }
}

}  // namespace berth
