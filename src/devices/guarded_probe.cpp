// The child with the driver's session, and the parent that asks it; see guarded_probe.h.
#include "devices/guarded_probe.h"

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
#include <sys/syscall.h>
#include <sys/wait.h>
#include <utility>

#include "devices/nvml_session.h"
#include "devices/wire.h"

namespace berth {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kSnapshot = 's';
constexpr char kTopology = 't';
constexpr int kSocket = 3;                          // the child's only descriptor beside 0, 1, 2
constexpr std::uint32_t kLargestAnswer = 64 << 20;  // a sane driver stays far below

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto written = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

// Leaves the child with nothing of the parent's but the socket. A descriptor that a hung child kept
// open would keep its other end waiting: the reader of `berth status | cat`, or a whole lease.
void shed_descriptors(int socket) {
  const int moved = ::fcntl(socket, F_DUPFD, kSocket + 1);  // out of the way of 0 to 3
  const int null = ::open("/dev/null", O_RDWR);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, fd);
  ::dup2(moved, kSocket);
  ::close_range(kSocket + 1, ~0U, 0);
}

void restore_signals() {
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD, SIGTSTP, SIGTTIN, SIGTTOU}) {
    ::signal(number, SIG_DFL);
  }
}

[[noreturn]] void serve(int socket, const std::string& library, pid_t parent) {
  // A parent that is killed while the driver hangs must not leave us behind.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(0);
  ::setsid();  // Ctrl-C is the parent's business
  shed_descriptors(socket);
  restore_signals();
  ::prctl(PR_SET_NAME, "berth-probe");
  NvmlSession session(library);
  char question = 0;
  while (::recv(kSocket, &question, 1, 0) == 1) {
    const std::string answer =
        question == kTopology ? wire::pack(session.topology()) : wire::pack(session.snapshot());
    const auto size = static_cast<std::uint32_t>(answer.size());
    std::string message(reinterpret_cast<const char*>(&size), sizeof size);
    message += answer;
    if (!write_all(kSocket, message)) break;
  }
  ::_exit(0);
}

// True once `fd` can be read, false if it still cannot when the time is up. What has arrived
// counts, however late it is looked at: this process may have been stopped meanwhile.
bool wait_readable(int fd, Clock::time_point until) {
  // To be put to sleep and woken again takes longer than a driver that is awake takes to answer.
  constexpr std::chrono::microseconds kQuick(100);
  const auto quick = std::min(until, Clock::now() + kQuick);
  while (Clock::now() < quick) {
    pollfd entry{fd, POLLIN, 0};
    if (::poll(&entry, 1, 0) > 0) return true;
    ::sched_yield();
  }
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd entry{fd, POLLIN, 0};
    const int ready =
        ::poll(&entry, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000)));
    if (ready > 0) return true;
    if (left <= 0) return false;
  }
}

// Reaps a killed child, unless it cannot end: then it is left to be reaped by init.
void reap(pid_t child) {
  constexpr int kPatienceMs = 200;
  const UniqueFd handle(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  pollfd entry{handle.get(), POLLIN, 0};
  if (handle) ::poll(&entry, 1, kPatienceMs);
  ::waitpid(child, nullptr, WNOHANG);
}

}  // namespace

GuardedProbe::~GuardedProbe() {
  stop();
}

Result<void> GuardedProbe::start() {
  if (socket_) return {};
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
  if (child == 0) serve(theirs.get(), settings_.library, parent);
  socket_ = std::move(mine);
  child_ = child;
  return {};
}

// Ends the child, and does not wait for one that cannot end.
void GuardedProbe::stop() {
  prepared_ = false;
  if (!socket_) return;
  socket_.reset();
  ::kill(child_, SIGKILL);
  reap(child_);
  child_ = -1;
}

Error GuardedProbe::child_died() {
  int status = 0;
  const bool reaped = ::waitpid(child_, &status, 0) == child_;
  prepared_ = false;
  socket_.reset();
  child_ = -1;
  if (reaped && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
    return {ErrorKind::no_driver,
            "the process that asks the NVIDIA driver was killed; try again, and see whether this "
            "host is out of memory (dmesg | grep -i oom)"};
  }
  if (reaped && WIFSIGNALED(status)) {
    return {ErrorKind::no_driver,
            fmt::format("the NVIDIA driver's library crashed (signal {}); reinstall the driver, or "
                        "see the kernel's log (dmesg)",
                        WTERMSIG(status))};
  }
  return {ErrorKind::no_driver,
          "the process that asks the NVIDIA driver ended unexpectedly; try again"};
}

Error GuardedProbe::timed_out() {
  stop();
  return {ErrorKind::no_driver,
          fmt::format("the NVIDIA driver did not answer within {}; it may hang (see dmesg | grep "
                      "NVRM), or be slow to start: BERTH_DRIVER_TIMEOUT=60s waits longer",
                      format_duration(settings_.limit))};
}

// Receives exactly `size` bytes of the answer to a question that was asked at `begin`.
Result<std::string> GuardedProbe::receive(std::size_t size, Clock::time_point begin) {
  std::string bytes(size, '\0');
  std::size_t have = 0;
  while (have < size) {
    const auto slow = begin + std::min(settings_.slow_after, settings_.limit);
    if (!wait_readable(socket_.get(), slow)) {
      if (settings_.on_slow && !std::exchange(told_, true)) settings_.on_slow();
      if (!wait_readable(socket_.get(), begin + settings_.limit)) {
        return tl::make_unexpected(timed_out());
      }
    }
    const auto got = ::recv(socket_.get(), bytes.data() + have, size - have, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return tl::make_unexpected(child_died());
    have += static_cast<std::size_t>(got);
  }
  return bytes;
}

Result<std::string> GuardedProbe::answer() {
  const auto begin = Clock::now();
  told_ = false;
  auto header = receive(sizeof(std::uint32_t), begin);
  if (!header) return header;
  std::uint32_t size = 0;
  std::memcpy(&size, header->data(), sizeof size);
  return receive(std::min(size, kLargestAnswer), begin);
}

Result<std::string> GuardedProbe::ask(char question) {
  if (auto started = start(); !started) return tl::make_unexpected(started.error());
  if (std::exchange(prepared_, false)) {
    auto prepared = answer();
    if (question == kSnapshot || !prepared) return prepared;
  }
  if (!write_all(socket_.get(), {&question, 1})) return tl::make_unexpected(child_died());
  return answer();
}

void GuardedProbe::prepare() {
  if (prepared_ || !start()) return;  // what is wrong, the question itself will tell
  prepared_ = write_all(socket_.get(), {&kSnapshot, 1});
}

template <class T>
Result<T> GuardedProbe::ask_for(char question) {
  auto bytes = ask(question);
  if (!bytes) return tl::make_unexpected(bytes.error());
  auto answer = wire::unpack<T>(*bytes);
  if (answer) return std::move(*answer);
  stop();
  return fail(ErrorKind::no_driver,
              "the NVIDIA driver's library damaged the process that asks it; reinstall the driver");
}

Result<Snapshot> GuardedProbe::snapshot() {
  return ask_for<Snapshot>(kSnapshot);
}

Result<Topology> GuardedProbe::topology() {
  return ask_for<Topology>(kTopology);
}

}  // namespace berth
