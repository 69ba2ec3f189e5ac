// Starting ssh and watching it; see ssh.h.
#include "cluster/remote/ssh.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <optional>
#include <poll.h>
#include <string_view>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "base/process.h"
#include "base/quantity.h"
#include "base/shell.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "run/job.h"

namespace berth {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxOutputSize = 64 << 10;
// For a killed process to exit, and for the ssh that closes the connection: both work locally.
constexpr std::chrono::seconds kExitTimeout(5);

tl::unexpected<Error> errno_error(const char* what) {
  return fail(ErrorKind::io, fmt::format("{}: {}", what, std::strerror(errno)));
}

struct Pipe {
  UniqueFd read_end;
  UniqueFd write_end;
  bool open() {
    std::array<int, 2> ends{-1, -1};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return false;
    read_end = UniqueFd(ends[0]);
    write_end = UniqueFd(ends[1]);
    return true;
  }
};

// Runs between fork() and exec, so it must not allocate. Does not return.
[[noreturn]] void exec_ssh(char* const* argv, pid_t parent, const sigset_t& mask) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kSshFailed);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::signal(number, SIG_IGN);
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  ::execvp(argv[0], argv);
  const std::string_view text = "berth: cannot start ssh\n";
  (void)!::write(STDERR_FILENO, text.data(), text.size());
  ::_exit(kSshFailed);
}

// Reads what is there. Bytes beyond kMaxOutputSize are discarded. At the end of the pipe it sets
// entry.fd to -1.
void read_some(pollfd& entry, std::string& into) {
  std::array<char, 4096> chunk{};
  const ssize_t size = ::read(entry.fd, chunk.data(), chunk.size());
  if (size < 0 && errno == EINTR) return;
  if (size <= 0) {
    entry.fd = -1;
    return;
  }
  const auto room = kMaxOutputSize - std::min(kMaxOutputSize, into.size());
  into.append(chunk.data(), std::min(static_cast<std::size_t>(size), room));
}

// Writes what the pipe has room for, without blocking. Sets entry.fd to -1 when all is written, or
// when the other end is closed.
void write_some(pollfd& entry, std::string_view& unsent) {
  const ssize_t written = ::write(entry.fd, unsent.data(), unsent.size());
  if (written < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (written > 0) unsent.remove_prefix(static_cast<std::size_t>(written));
  if (written <= 0 || unsent.empty()) entry.fd = -1;
}

// Ignores SIGPIPE in the whole process while this object exists, so that a write to a pipe without
// a reader fails instead.
class ScopedIgnoreSigpipe {
 public:
  ScopedIgnoreSigpipe() : previous_handler_(std::signal(SIGPIPE, SIG_IGN)) {}
  ScopedIgnoreSigpipe(const ScopedIgnoreSigpipe&) = delete;
  ScopedIgnoreSigpipe& operator=(const ScopedIgnoreSigpipe&) = delete;
  ~ScopedIgnoreSigpipe() { std::signal(SIGPIPE, previous_handler_); }

 private:
  void (*previous_handler_)(int);
};

int milliseconds_until(Clock::time_point until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

// Waits for a child until `until` and returns its status; nullopt if it has not exited by then.
// `process` is from open_process(), and may be empty.
std::optional<int> reap(pid_t child, const UniqueFd& process, Clock::time_point until) {
  for (;;) {
    int status = kUnknownStatus;
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child || (ended < 0 && errno == ECHILD)) return status;
    if (Clock::now() >= until) return std::nullopt;
    pollfd entry{process.get(), POLLIN, 0};
    ::poll(&entry, 1, process ? milliseconds_until(until) : 1);
  }
}

// Kills a child and waits for it. A child that the kernel cannot end yet, such as one that waits
// for a file server, is left to init.
void kill_and_reap(pid_t child, const UniqueFd& process) {
  ::kill(child, SIGKILL);
  reap(child, process, Clock::now() + kExitTimeout);
}

struct Pipes {
  Pipe input;
  Pipe output;
  Pipe errors;
  bool open() {
    // A write that blocks would keep this process from reading, which ssh may wait for.
    return input.open() && output.open() && errors.open() &&
           ::fcntl(input.write_end.get(), F_SETFL, O_NONBLOCK) == 0;
  }
};

// A running ssh, and this process's ends of its pipes. The destructor kills ssh unless it has
// exited. `input` must outlive the object.
class RunningSsh {
 public:
  RunningSsh(pid_t child, Pipes pipes, std::string_view input)
      : child_(child),
        process_(open_process(child)),
        pipes_(std::move(pipes)),
        unsent_input_(input) {
    pipes_.input.read_end.reset();
    pipes_.output.write_end.reset();
    pipes_.errors.write_end.reset();
    poll_fds_ = {{{unsent_input_.empty() ? -1 : pipes_.input.write_end.get(), POLLOUT, 0},
                  {pipes_.output.read_end.get(), POLLIN, 0},
                  {pipes_.errors.read_end.get(), POLLIN, 0},
                  {-1, POLLIN, 0},
                  {-1, POLLIN, 0}}};
  }
  RunningSsh(const RunningSsh&) = delete;
  RunningSsh& operator=(const RunningSsh&) = delete;
  ~RunningSsh() {
    if (!status_) kill_and_reap(child_, process_);
  }

  // Writes and reads until ssh has exited, `interrupt_fd` is readable, or the time is up. False,
  // with errno set, if ssh cannot be watched.
  bool wait(int interrupt_fd, Clock::time_point until) {
    if (!process_) return false;
    bool readable = false;
    while (!status_ && !readable && Clock::now() < until) {
      close_finished_pipes();
      poll_fds_[kInterrupt].fd = interrupt_fd;
      const int ready = ::poll(poll_fds_.data(), poll_fds_.size(), milliseconds_until(until));
      if (ready < 0 && errno != EINTR) return false;
      if (ready <= 0) continue;
      if (is_ready(kInput)) write_some(poll_fds_[kInput], unsent_input_);
      if (is_ready(kOutput)) read_some(poll_fds_[kOutput], result_.output);
      if (is_ready(kErrors)) read_some(poll_fds_[kErrors], result_.errors);
      if (is_ready(kProcess)) status_ = reap(child_, process_, until);
      readable = is_ready(kInterrupt);
    }
    return true;
  }

  bool has_ended() const { return status_.has_value(); }
  bool has_read_input() const { return unsent_input_.empty(); }

  // Only after ssh has exited.
  Ssh::CommandOutput take_output() {
    // Reads what ssh wrote before it exited.
    while (poll_fds_[kErrors].fd >= 0 && ::poll(&poll_fds_[kErrors], 1, 0) > 0) {
      read_some(poll_fds_[kErrors], result_.errors);
    }
    result_.code = exit_code(status_.value_or(kUnknownStatus));
    return std::move(result_);
  }

 private:
  enum PollIndex : std::size_t { kInput, kOutput, kErrors, kProcess, kInterrupt };

  bool is_ready(PollIndex which) const {
    return poll_fds_[which].fd >= 0 && poll_fds_[which].revents != 0;
  }

  // ssh's background process for the shared connection keeps the pipe of errors open. So the end of
  // the output shows that the command is done.
  void close_finished_pipes() {
    if (poll_fds_[kOutput].fd < 0) {
      poll_fds_[kInput].fd = -1;
      poll_fds_[kProcess].fd = process_.get();
    }
    if (poll_fds_[kInput].fd < 0) pipes_.input.write_end.reset();
  }

  pid_t child_;
  UniqueFd process_;
  Pipes pipes_;
  std::string_view unsent_input_;
  ScopedIgnoreSigpipe ignore_sigpipe_;
  std::array<pollfd, 5> poll_fds_{};
  std::optional<int> status_;
  Ssh::CommandOutput result_;
};

}  // namespace

std::string quote_command(const std::vector<std::string>& arguments) {
  return join_text(arguments, " ", single_quote);
}

std::string shell_command(const std::string& script, const std::vector<std::string>& words) {
  std::vector<std::string> all{"sh", "-c", script, "berth"};
  all.insert(all.end(), words.begin(), words.end());
  return quote_command(all);
}

Ssh::Ssh(std::string host, std::string folder, const sigset_t& mask)
    : host_(std::move(host)), folder_(std::move(folder)), mask_(mask) {}

Ssh::Ssh(Ssh&& other) noexcept
    : host_(std::move(other.host_)),
      folder_(std::exchange(other.folder_, "")),
      mask_(other.mask_) {}

Result<Ssh> Ssh::create(std::string host, const sigset_t& mask) {
  // Short, since the path of a socket has at most 107 bytes.
  std::string folder = "/tmp/berth-ssh-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr)
    return errno_error("cannot create a folder for the socket of ssh");
  return Ssh(std::move(host), std::move(folder), mask);
}

Ssh::~Ssh() {
  if (folder_.empty()) return;
  const std::string socket = fmt::format("{}/c", folder_);
  if (::access(socket.c_str(), F_OK) == 0) {
    std::vector<std::string> arguments = base_arguments();
    arguments.insert(arguments.end() - 2, {"-O", "exit"});  // before "--" and the host
    std::vector<char*> argv = exec_pointers(arguments);
    const pid_t parent = ::getpid();
    const pid_t child = ::fork();
    if (child == 0) {
      const int dev_null = ::open("/dev/null", O_RDWR);
      for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(dev_null, fd);
      exec_ssh(argv.data(), parent, mask_);
    }
    if (child > 0) {
      const UniqueFd process = open_process(child);
      if (!reap(child, process, Clock::now() + kExitTimeout)) kill_and_reap(child, process);
    }
    ::unlink(socket.c_str());
  }
  ::rmdir(folder_.c_str());
}

std::vector<std::string> Ssh::base_arguments() const {
  return {"ssh",
          "-k",  // no Kerberos credentials
          "-o",
          "BatchMode=yes",  // no prompts: the user may be away when a GPU comes free
          "-o",
          "StrictHostKeyChecking=yes",
          "-o",
          "ForwardAgent=no",
          "-o",
          "ForwardX11=no",
          "-o",
          "ClearAllForwardings=yes",
          "-o",
          "Tunnel=no",
          "-o",
          "PermitLocalCommand=no",
          "-o",
          "RemoteCommand=none",
          "-o",
          "RequestTTY=auto",  // start() asks for a terminal by -tt
          "-o",
          "ConnectTimeout=10",
          "-o",
          "LogLevel=ERROR",
          "-o",
          "ServerAliveInterval=15",
          "-o",
          "ControlMaster=auto",
          "-o",
          "ControlPersist=60",
          "-o",
          fmt::format("ControlPath={}/c", folder_),
          "--",
          host_};
}

Result<Ssh::CommandOutput> Ssh::run(const std::string& command, const std::string& input,
                                    const RunLimits& limits) const {
  const auto until = Clock::now() + limits.timeout;
  Pipes pipes;
  if (!pipes.open()) return errno_error("cannot create a pipe to ssh");
  std::vector<std::string> arguments = base_arguments();
  arguments.push_back(command);
  std::vector<char*> argv = exec_pointers(arguments);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return errno_error("cannot start ssh");
  if (child == 0) {
    ::dup2(pipes.input.read_end.get(), STDIN_FILENO);
    ::dup2(pipes.output.write_end.get(), STDOUT_FILENO);
    ::dup2(pipes.errors.write_end.get(), STDERR_FILENO);
    exec_ssh(argv.data(), parent, mask_);
  }
  RunningSsh ssh(child, std::move(pipes), input);
  while (!ssh.has_ended()) {
    if (!ssh.wait(limits.interrupt_fd, until)) return errno_error("cannot wait for ssh");
    if (ssh.has_ended()) break;
    if (Clock::now() >= until) {
      return fail(ErrorKind::io, fmt::format("ssh to {} did not end within {}", host_,
                                             format_duration(limits.timeout)));
    }
    if (limits.is_interrupted && limits.is_interrupted()) {
      return fail(ErrorKind::io, fmt::format("ssh to {} was interrupted", host_));
    }
  }
  CommandOutput output = ssh.take_output();
  if (output.code == 0 && !ssh.has_read_input()) {
    return fail(ErrorKind::io,
                fmt::format("ssh to {} ended before it had read all of its input", host_));
  }
  return output;
}

Result<pid_t> Ssh::start(const std::string& command, bool terminal) const {
  const bool has_terminal = terminal && ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1;
  std::vector<std::string> arguments = base_arguments();
  if (has_terminal) arguments.insert(arguments.begin() + 1, "-tt");
  if (!terminal) arguments.insert(arguments.begin() + 1, "-n");
  arguments.push_back(command);
  std::vector<char*> argv = exec_pointers(arguments);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return errno_error("cannot start ssh");
  if (child == 0) exec_ssh(argv.data(), parent, mask_);
  return child;
}

}  // namespace berth
