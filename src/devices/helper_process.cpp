// Starts helper processes and isolates them from their parent; see helper_process.h.
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

using Clock = std::chrono::steady_clock;

constexpr int kChildSocket = 3;  // the child's only descriptor besides 0, 1 and 2
constexpr const char* kHelperFlag = "--helper";
constexpr std::chrono::milliseconds kKillTimeout(200);  // for the exit of a killed child

// The timeout for poll(2), which is an int: at most a minute, so callers must poll in a loop.
int poll_timeout(Clock::duration left) {
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::clamp<std::int64_t>(ms, 0, 60'000));
}

// False if the descriptor is not ready at the deadline.
bool wait_for(int fd, short events, Clock::time_point deadline) {
  for (;;) {
    const auto now = Clock::now();
    pollfd entry{fd, events, 0};
    if (::poll(&entry, 1, poll_timeout(deadline - now)) > 0) return true;
    if (now >= deadline) return false;
  }
}

// Closes all descriptors of the parent except the socket. A descriptor that a hung child kept open
// would block its other end: the reader of `berth status | cat`, or the end of a lease. Works even
// if the parent has used up its descriptors. Exits on failure: the helper must not use a descriptor
// of the parent as its socket.
void close_inherited_descriptors(int socket) {
  // The socket must not be one of 0 to 2, which are replaced below.
  const int moved = socket < kChildSocket ? ::fcntl(socket, F_DUPFD, kChildSocket) : socket;
  if (moved < 0 || (moved != kChildSocket && ::dup2(moved, kChildSocket) < 0)) ::_exit(1);
  ::close_range(kChildSocket + 1, ~0U, 0);
  const int null = ::open("/dev/null", O_RDWR);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::dup2(null, fd) < 0) ::_exit(1);
  }
  if (null > kChildSocket) ::close(null);
}

// Removes the parent's handlers before the mask: they must not run in the child. The berth program
// handles a real-time signal only while it waits for the harbour's lock, with a timer that no child
// inherits.
void restore_signals() {
  for (int number = 1; number < __SIGRTMIN; ++number) ::signal(number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// Lets the kernel kill this process with its parent: a parent that is killed while the driver hangs
// must not leave this process behind.
void exit_with_parent(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(0);
}

int run_work(const Helper& helper, const HelperArguments& arguments) {
  ::prctl(PR_SET_NAME, helper.name);
  try {
    helper.work(kChildSocket, arguments);
  } catch (...) {  // a fork must not unwind into its copy of the parent's code
    return 1;
  }
  return 0;
}

int fork_helper(const Helper& helper, const HelperArguments& arguments, int socket, pid_t& child) {
  const pid_t parent = ::getpid();
  child = ::fork();
  if (child != 0) return child < 0 ? errno : 0;
  exit_with_parent(parent);
  // A process group, so that Ctrl-C reaches only the parent. Not a session: with autogroups
  // (CONFIG_SCHED_AUTOGROUP) the kernel schedules a new session apart from this one, so that on a
  // busy processor the parent, which waits for the reply, would run first.
  ::setpgid(0, 0);
  close_inherited_descriptors(socket);
  restore_signals();
  ::_exit(run_work(helper, arguments));
}

// The file actions and attributes of posix_spawn(). Setting them can fail for lack of memory. After
// the first error nothing more is set, and spawn() returns that error.
class SpawnSettings {
 public:
  SpawnSettings() {
    has_actions_ = check(::posix_spawn_file_actions_init(&actions_));
    has_attributes_ = check(::posix_spawnattr_init(&attributes_));
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
  ~SpawnSettings() {
    if (has_attributes_) ::posix_spawnattr_destroy(&attributes_);
    if (has_actions_) ::posix_spawn_file_actions_destroy(&actions_);
  }

  // The child gets `socket` as kChildSocket, /dev/null as 0 to 2, and no other descriptor.
  void set_descriptors(int socket) {
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
      if (problem_ != 0) return;
      check(::posix_spawn_file_actions_addopen(&actions_, fd, "/dev/null", O_RDWR, 0));
    }
    if (problem_ == 0) check(::posix_spawn_file_actions_adddup2(&actions_, socket, kChildSocket));
    if (problem_ == 0)
      check(::posix_spawn_file_actions_addclosefrom_np(&actions_, kChildSocket + 1));
  }

  // The child gets a process group of its own (see fork_helper()), no signal handlers and no
  // blocked signals.
  void set_group_and_signals() {
    sigset_t all;
    sigset_t none;
    ::sigfillset(&all);
    ::sigemptyset(&none);
    constexpr short kFlags = POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK;
    if (problem_ == 0) check(::posix_spawnattr_setflags(&attributes_, kFlags));
    if (problem_ == 0) check(::posix_spawnattr_setpgroup(&attributes_, 0));
    if (problem_ == 0) check(::posix_spawnattr_setsigdefault(&attributes_, &all));
    if (problem_ == 0) check(::posix_spawnattr_setsigmask(&attributes_, &none));
  }

  int spawn(const std::string& program, char** argv, pid_t& child) {
    if (problem_ != 0) return problem_;
    return ::posix_spawn(&child, program.c_str(), &actions_, &attributes_, argv, environ);
  }

 private:
  bool check(int result) {
    if (problem_ == 0) problem_ = result;
    return result == 0;
  }

  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
  bool has_actions_ = false;
  bool has_attributes_ = false;
  int problem_ = 0;
};

// Starts `program` with the command line that run_helper() parses: NAME --helper PARENT ARGUMENT...
int spawn_helper(const Helper& helper, const HelperArguments& arguments, int socket,
                 const std::string& program, pid_t& child) {
  std::vector<std::string> words{helper.name, kHelperFlag, std::to_string(::getpid())};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  // The socket must not be one of 0 to 3, which the file actions replace.
  const UniqueFd moved(::fcntl(socket, F_DUPFD_CLOEXEC, kChildSocket + 1));
  if (!moved) return errno;
  SpawnSettings settings;
  settings.set_descriptors(moved.get());
  settings.set_group_and_signals();
  return settings.spawn(program, argv.data(), child);
}

// Kills and reaps a child without a handle. The kernel cannot reuse its PID before it is reaped.
void kill_by_pid(pid_t child) {
  ::kill(child, SIGKILL);
  const auto deadline = Clock::now() + kKillTimeout;
  while (::waitpid(child, nullptr, WNOHANG) == 0 && Clock::now() < deadline) {
    ::poll(nullptr, 0, 1);
  }
}

}  // namespace

Result<HelperProcess> start_helper(const Helper& helper, const HelperArguments& arguments,
                                   const std::string& program) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    const int reason = errno;
    return fail(ErrorKind::no_driver,
                fmt::format("cannot query the driver: {}{}", std::strerror(reason),
                            reason == EMFILE ? "; see ulimit -n" : ""));
  }
  UniqueFd parent_end(ends[0]);
  const UniqueFd child_end(ends[1]);
  pid_t child = -1;
  const int problem = program.empty()
                          ? fork_helper(helper, arguments, child_end.get(), child)
                          : spawn_helper(helper, arguments, child_end.get(), program, child);
  if (problem == 0) {
    UniqueFd handle = open_process(child);
    // ESRCH: the child has exited already, and the host program ignores SIGCHLD, so that the kernel
    // has reaped it.
    if (handle || errno == ESRCH)
      return HelperProcess{child, std::move(parent_end), std::move(handle)};
    const int reason = errno;
    kill_by_pid(child);
    return fail(
        ErrorKind::no_driver,
        fmt::format("cannot query the driver: its helper process cannot be watched: {}; see "
                    "ulimit -n",
                    std::strerror(reason)));
  }
  return fail(
      ErrorKind::no_driver,
      problem == ENOENT
          ? fmt::format("cannot query the driver: there is no program {}; install berth again",
                        in_quotes(program))
          : fmt::format("cannot query the driver: no process can be started: {}; see "
                        "ulimit -u",
                        std::strerror(problem)));
}

bool is_helper(int argc, const char* const* argv) {
  return argc > 2 && std::string_view(argv[1]) == kHelperFlag;
}

int run_helper(int argc, const char* const* argv, const std::vector<Helper>& helpers) {
  exit_with_parent(parse_integer<pid_t>(argv[2]).value_or(0));
  for (const Helper& helper : helpers) {
    // _exit(), because the driver's library may hang or crash in its exit handlers.
    if (std::string_view(argv[0]) == helper.name)
      ::_exit(run_work(helper, {argv + 3, argv + argc}));
  }
  return 1;
}

void kill_helper(const UniqueFd& handle) {
  if (!handle) return;
  send_signal(handle, SIGKILL);
  reap_helper(handle, Clock::now() + kKillTimeout);
}

std::optional<siginfo_t> reap_helper(const UniqueFd& handle, Clock::time_point deadline) {
  if (!handle || !wait_for(handle.get(), POLLIN, deadline)) return std::nullopt;
  siginfo_t info{};
  const auto id = static_cast<id_t>(handle.get());
  // WNOHANG: the pidfd is readable although waitid() would wait if a debugger holds the process.
  if (::waitid(P_PIDFD, id, &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0) {
    return std::nullopt;
  }
  return info;
}

bool send_all(int socket, std::string_view bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    const auto written = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {
      if (!wait_for(socket, POLLOUT, deadline)) return false;
      continue;
    }
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

ssize_t receive_some(int socket, char* buffer, std::size_t size) {
  return TEMP_FAILURE_RETRY(::recv(socket, buffer, size, MSG_DONTWAIT));
}

bool wait_readable(int fd, std::chrono::steady_clock::time_point deadline, int interrupt,
                   std::chrono::microseconds spin_time) {
  const auto spin_until = std::min(deadline, Clock::now() + spin_time);
  for (;;) {
    const auto now = Clock::now();
    const bool may_sleep = now >= spin_until;
    std::array<pollfd, 2> watched{{{fd, POLLIN, 0}, {interrupt, POLLIN, 0}}};
    const int ready =
        ::poll(watched.data(), watched.size(), may_sleep ? poll_timeout(deadline - now) : 0);
    if (ready > 0) return watched[0].revents != 0;
    if (now >= deadline) return false;
    // On a single processor, the other process needs it to answer.
    if (!may_sleep) ::sched_yield();
  }
}

}  // namespace berth
