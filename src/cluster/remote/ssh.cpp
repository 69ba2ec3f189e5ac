// Starting ssh; see ssh.h.
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
#include "base/unique_fd.h"
#include "run/job.h"

namespace berth {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostOutput = 64 << 10;
// For a process that was killed, and for one that ends the connection: both are local work.
constexpr std::chrono::seconds kPatience(5);

tl::unexpected<Error> cannot(const char* what) {
  return fail(ErrorKind::io, fmt::format("{}: {}", what, std::strerror(errno)));
}

struct Pipe {
  UniqueFd reading;
  UniqueFd writing;
  bool open() {
    std::array<int, 2> ends{-1, -1};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return false;
    reading = UniqueFd(ends[0]);
    writing = UniqueFd(ends[1]);
    return true;
  }
};

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  return argv;
}

// Between fork() and exec: nothing here allocates. Does not come back.
[[noreturn]] void become(char* const* argv, pid_t parent, const sigset_t& mask, bool deaf) {
  constexpr int kNotRunnable = 255;  // as ssh says that it has failed
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kNotRunnable);
  if (deaf) {
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::signal(number, SIG_IGN);
  }
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  ::execvp(argv[0], argv);
  const std::string_view text = "berth: ssh cannot be started\n";
  (void)!::write(STDERR_FILENO, text.data(), text.size());
  ::_exit(kNotRunnable);
}

void read_some(pollfd& entry, std::string& into) {
  std::array<char, 4096> piece{};
  const ssize_t got = ::read(entry.fd, piece.data(), piece.size());
  if (got < 0 && errno == EINTR) return;
  if (got <= 0) {
    entry.fd = -1;
    return;
  }
  const auto room = kMostOutput - std::min(kMostOutput, into.size());
  into.append(piece.data(), std::min(static_cast<std::size_t>(got), room));
}

// Writes what the pipe takes now: it does not block. When nothing is left, or nothing more is read
// at the other end, entry.fd is -1.
void write_some(pollfd& entry, std::string_view& left) {
  const ssize_t put = ::write(entry.fd, left.data(), left.size());
  if (put < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (put > 0) left.remove_prefix(static_cast<std::size_t>(put));
  if (put <= 0 || left.empty()) entry.fd = -1;
}

// SIGPIPE is ignored as long as this lives: a write to a pipe that no process reads then fails.
class IgnoredSigpipe {
 public:
  IgnoredSigpipe() : before_(std::signal(SIGPIPE, SIG_IGN)) {}
  IgnoredSigpipe(const IgnoredSigpipe&) = delete;
  IgnoredSigpipe& operator=(const IgnoredSigpipe&) = delete;
  ~IgnoredSigpipe() { std::signal(SIGPIPE, before_); }

 private:
  void (*before_)(int);
};

int milliseconds_until(Clock::time_point until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

// Collects a child that has ended, or ends before `until`: its status. `process` is from
// open_process(), and may be empty.
std::optional<int> collect(pid_t child, const UniqueFd& process, Clock::time_point until) {
  for (;;) {
    int status = kUnknownStatus;
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child || (ended < 0 && errno == ECHILD)) return status;
    if (Clock::now() >= until) return std::nullopt;
    pollfd entry{process.get(), POLLIN, 0};
    ::poll(&entry, 1, process ? milliseconds_until(until) : 1);
  }
}

// Kills a child and collects it. A child that the kernel cannot end, as one that waits for a file
// server, is left to init.
void end_child(pid_t child, const UniqueFd& process) {
  ::kill(child, SIGKILL);
  collect(child, process, Clock::now() + kPatience);
}

struct Pipes {
  Pipe input;
  Pipe output;
  Pipe errors;
  bool open() {
    // A write that blocks would keep us from reading, for which the other end may wait.
    return input.open() && output.open() && errors.open() &&
           ::fcntl(input.writing.get(), F_SETFL, O_NONBLOCK) == 0;
  }
};

// A running ssh, and our ends of its pipes. It is killed with this object, unless it has ended.
class RunningSsh {
 public:
  RunningSsh(pid_t child, Pipes pipes, std::string_view input)
      : child_(child), process_(open_process(child)), pipes_(std::move(pipes)), left_(input) {
    pipes_.input.reading.reset();
    pipes_.output.writing.reset();
    pipes_.errors.writing.reset();
    watched_ = {{{left_.empty() ? -1 : pipes_.input.writing.get(), POLLOUT, 0},
                 {pipes_.output.reading.get(), POLLIN, 0},
                 {pipes_.errors.reading.get(), POLLIN, 0},
                 {-1, POLLIN, 0},
                 {-1, POLLIN, 0}}};
  }
  RunningSsh(const RunningSsh&) = delete;
  RunningSsh& operator=(const RunningSsh&) = delete;
  ~RunningSsh() {
    if (!status_) end_child(child_, process_);
  }

  // Writes and reads until ssh has ended, `descriptor` can be read, or the time is up. False, with
  // errno, if ssh cannot be watched.
  bool wait(int descriptor, Clock::time_point until) {
    if (!process_) return false;
    bool readable = false;
    while (!status_ && !readable && Clock::now() < until) {
      close_what_has_ended();
      watched_[kInterrupt].fd = descriptor;
      const int ready = ::poll(watched_.data(), watched_.size(), milliseconds_until(until));
      if (ready < 0 && errno != EINTR) return false;
      if (ready <= 0) continue;
      if (is_ready(kInput)) write_some(watched_[kInput], left_);
      if (is_ready(kOutput)) read_some(watched_[kOutput], result_.output);
      if (is_ready(kErrors)) read_some(watched_[kErrors], result_.errors);
      if (is_ready(kProcess)) status_ = collect(child_, process_, until);
      readable = is_ready(kInterrupt);
    }
    return true;
  }

  bool has_ended() const { return status_.has_value(); }
  bool has_read_input() const { return left_.empty(); }

  // After it has ended.
  Ssh::Output take_output() {
    // What ssh wrote before it ended.
    while (watched_[kErrors].fd >= 0 && ::poll(&watched_[kErrors], 1, 0) > 0) {
      read_some(watched_[kErrors], result_.errors);
    }
    result_.code = exit_code(status_.value_or(kUnknownStatus));
    return std::move(result_);
  }

 private:
  enum Watched : std::size_t { kInput, kOutput, kErrors, kProcess, kInterrupt };

  bool is_ready(Watched which) const {
    return watched_[which].fd >= 0 && watched_[which].revents != 0;
  }

  // The connection's master keeps the pipe of errors open: the end of the output tells that the
  // command is done.
  void close_what_has_ended() {
    if (watched_[kOutput].fd < 0) {
      watched_[kInput].fd = -1;
      watched_[kProcess].fd = process_.get();
    }
    if (watched_[kInput].fd < 0) pipes_.input.writing.reset();
  }

  pid_t child_;
  UniqueFd process_;
  Pipes pipes_;
  std::string_view left_;  // of the input
  IgnoredSigpipe ignored_;
  std::array<pollfd, 5> watched_{};
  std::optional<int> status_;
  Ssh::Output result_;
};

}  // namespace

std::string quoted_words(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ' ';
    text += single_quote(word);
  }
  return text;
}

Ssh::Ssh(std::string host, std::string folder, const sigset_t& mask)
    : host_(std::move(host)), folder_(std::move(folder)), mask_(mask) {}

Ssh::Ssh(Ssh&& other) noexcept
    : host_(std::move(other.host_)),
      folder_(std::exchange(other.folder_, "")),
      mask_(other.mask_) {}

Result<Ssh> Ssh::to(std::string host, const sigset_t& mask) {
  // Short: the path of a socket has 107 bytes at most.
  std::string folder = "/tmp/berth-ssh-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) return cannot("no folder for the socket of ssh");
  return Ssh(std::move(host), std::move(folder), mask);
}

Ssh::~Ssh() {
  if (folder_.empty()) return;
  const std::string socket = fmt::format("{}/c", folder_);
  if (::access(socket.c_str(), F_OK) == 0) {
    std::vector<std::string> words = arguments();
    words.insert(words.end() - 2, {"-O", "exit"});  // before "--"
    std::vector<char*> argv = pointers(words);
    const pid_t parent = ::getpid();
    const pid_t child = ::fork();
    if (child == 0) {
      const int nothing = ::open("/dev/null", O_RDWR);
      for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(nothing, fd);
      become(argv.data(), parent, mask_, true);
    }
    if (child > 0) {
      const UniqueFd process = open_process(child);
      if (!collect(child, process, Clock::now() + kPatience)) end_child(child, process);
    }
    ::unlink(socket.c_str());
  }
  ::rmdir(folder_.c_str());
}

std::vector<std::string> Ssh::arguments() const {
  return {"ssh",
          "-k",  // no Kerberos credentials
          "-o",
          "BatchMode=yes",  // no terminal may be there to type at when a GPU comes free at night
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
          "RequestTTY=auto",  // -tt asks for one
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

Result<Ssh::Output> Ssh::run(const std::string& command, const std::string& input,
                             const Limits& limits) const {
  const auto until = Clock::now() + limits.time;
  Pipes pipes;
  if (!pipes.open()) return cannot("no pipe to ssh");
  std::vector<std::string> words = arguments();
  words.push_back(command);
  std::vector<char*> argv = pointers(words);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return cannot("ssh cannot be started");
  if (child == 0) {
    ::dup2(pipes.input.reading.get(), STDIN_FILENO);
    ::dup2(pipes.output.writing.get(), STDOUT_FILENO);
    ::dup2(pipes.errors.writing.get(), STDERR_FILENO);
    become(argv.data(), parent, mask_, true);
  }
  RunningSsh ssh(child, std::move(pipes), input);
  while (!ssh.has_ended()) {
    if (!ssh.wait(limits.descriptor, until)) return cannot("ssh cannot be watched");
    if (ssh.has_ended()) break;
    if (Clock::now() >= until) {
      return fail(ErrorKind::io, fmt::format("ssh to {} did not end within {}", host_,
                                                  format_duration(limits.time)));
    }
    if (limits.interrupted && limits.interrupted()) {
      return fail(ErrorKind::io, fmt::format("ssh to {} was interrupted", host_));
    }
  }
  Output output = ssh.take_output();
  if (output.code == 0 && !ssh.has_read_input()) {
    return fail(ErrorKind::io,
                fmt::format("ssh to {} ended before it had read its input", host_));
  }
  return output;
}

Result<pid_t> Ssh::start(const std::string& command) const {
  const bool terminal = ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1;
  std::vector<std::string> words = arguments();
  if (terminal) words.insert(words.begin() + 1, "-tt");
  words.push_back(command);
  std::vector<char*> argv = pointers(words);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return cannot("ssh cannot be started");
  if (child == 0) become(argv.data(), parent, mask_, true);
  return child;
}

}  // namespace berth
