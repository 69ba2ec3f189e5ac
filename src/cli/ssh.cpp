// Starting ssh; see ssh.h.
#include "cli/ssh.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <string_view>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "base/unique_fd.h"
#include "cli/job.h"

namespace berth {
namespace {

constexpr std::size_t kMostOutput = 64 << 10;

tl::unexpected<Error> cannot(const char* what) {
  return fail(ErrorKind::harbour, fmt::format("{}: {}", what, std::strerror(errno)));
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

}  // namespace

std::string quoted_words(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ' ';
    text += '\'';
    for (const char c : word) {
      if (c == '\'') {
        text += "'\\''";
      } else {
        text += c;
      }
    }
    text += '\'';
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
    int status = 0;
    while (child > 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) {
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

Result<Ssh::Output> Ssh::run(const std::string& command, const std::string& input) const {
  Pipe in;
  Pipe out;
  Pipe err;
  if (!in.open() || !out.open() || !err.open()) return cannot("no pipe to ssh");
  std::vector<std::string> words = arguments();
  words.push_back(command);
  std::vector<char*> argv = pointers(words);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return cannot("ssh cannot be started");
  if (child == 0) {
    ::dup2(in.reading.get(), STDIN_FILENO);
    ::dup2(out.writing.get(), STDOUT_FILENO);
    ::dup2(err.writing.get(), STDERR_FILENO);
    become(argv.data(), parent, mask_, true);
  }
  in.reading.reset();
  out.writing.reset();
  err.writing.reset();
  // A write that blocks would keep us from reading, for which the other end may wait.
  if (::fcntl(in.writing.get(), F_SETFL, O_NONBLOCK) != 0) return cannot("no pipe to ssh");
  Output result;
  std::string_view left = input;
  const auto on_pipe = std::signal(SIGPIPE, SIG_IGN);
  std::array<pollfd, 3> watched{{{left.empty() ? -1 : in.writing.get(), POLLOUT, 0},
                                 {out.reading.get(), POLLIN, 0},
                                 {err.reading.get(), POLLIN, 0}}};
  // The connection's master keeps the pipe of errors open: the end of the output tells that it is
  // done.
  while (watched[1].fd >= 0) {
    if (watched[0].fd < 0) in.writing.reset();
    if (::poll(watched.data(), watched.size(), -1) < 0) {
      if (errno == EINTR) continue;
      break;
    }
    if (watched[0].fd >= 0 && watched[0].revents != 0) write_some(watched[0], left);
    if (watched[1].revents != 0) read_some(watched[1], result.output);
    if (watched[2].fd >= 0 && watched[2].revents != 0) read_some(watched[2], result.errors);
  }
  in.writing.reset();
  out.reading.reset();
  int status = kUnknownStatus;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  std::signal(SIGPIPE, on_pipe);
  // What it had to say before it ended.
  while (watched[2].fd >= 0 && ::poll(&watched[2], 1, 0) > 0) read_some(watched[2], result.errors);
  result.code = exit_code(status);
  if (result.code == 0 && !left.empty()) {
    return fail(ErrorKind::harbour,
                fmt::format("ssh to {} ended before it had read its input", host_));
  }
  return result;
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
