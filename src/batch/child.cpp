// Starting and ending of the processes of a batch; see child.h.
#include "batch/child.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "run/job.h"

namespace berth::batch {
namespace {

tl::unexpected<Error> cannot_start(int reason) {
  return fail(ErrorKind::usage, fmt::format("batch: no job can be started: {}; try a smaller -j",
                                            std::strerror(reason)));
}

struct Ends {
  int input;
  int log;
  int tell;
};

// Between fork() and exec: nothing here allocates. Does not come back.
[[noreturn]] void become(char* const* argv, const Ends& ends, pid_t parent,
                         const Inherited& inherited) {
  constexpr int kNotRunnable = 126;
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(kNotRunnable);  // it was killed before it could be watched
  const bool ready = ::dup2(ends.input, STDIN_FILENO) >= 0 &&
                     ::dup2(ends.log, STDOUT_FILENO) >= 0 && ::dup2(ends.log, STDERR_FILENO) >= 0 &&
                     ::fcntl(ends.tell, F_SETFD, 0) == 0;
  ::signal(SIGPIPE, inherited.on_pipe);
  ::setrlimit(RLIMIT_NOFILE, &inherited.descriptors);
  ::sigprocmask(SIG_SETMASK, inherited.mask, nullptr);
  // The file that runs now, even if another berth has been installed in its place.
  if (ready) ::execv("/proc/self/exe", argv);
  ::_exit(kNotRunnable);
}

}  // namespace

Result<Child> Child::start(const std::vector<std::string>& words, const UniqueFd& log,
                           const Inherited& inherited) {
  std::array<int, 2> ends{-1, -1};
  const UniqueFd input(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!input || ::pipe2(ends.data(), O_CLOEXEC) != 0) return cannot_start(errno);
  UniqueFd told(ends[0]);
  const UniqueFd tell(ends[1]);
  ::fcntl(told.get(), F_SETFL, O_NONBLOCK);
  std::vector<std::string> texts{"berth", "run", fmt::format("--tell={}", tell.get())};
  texts.insert(texts.end(), words.begin(), words.end());
  std::vector<char*> argv;
  argv.reserve(texts.size() + 1);
  for (std::string& text : texts) argv.push_back(text.data());
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return cannot_start(errno);
  if (pid == 0) {
    become(argv.data(), {input.get(), log.get(), tell.get()}, parent, inherited);
  }
  ::setpgid(pid, pid);  // here too: whoever comes first
  return Child(pid, std::move(told));
}

std::vector<RunEvent> Child::events() {
  std::vector<RunEvent> all;
  std::array<char, 4096> chunk{};
  for (;;) {
    const ssize_t got = ::read(told_.get(), chunk.data(), chunk.size());
    if (got <= 0) return all;
    for (RunEvent& event : parser_.take({chunk.data(), static_cast<std::size_t>(got)})) {
      all.push_back(std::move(event));
    }
  }
}

std::optional<int> Child::end() {
  int status = 0;
  const pid_t changed = ::waitpid(pid_, &status, WNOHANG);
  if (changed < 0 && errno == ECHILD) return kUnknownStatus;
  if (changed != pid_) return std::nullopt;
  if (WIFEXITED(status) || WIFSIGNALED(status)) return status;
  return std::nullopt;
}

void Child::stop() const {
  ::kill(pid_, SIGTERM);
}

void Child::kill() const {
  ::kill(-pid_, SIGKILL);
}

}  // namespace berth::batch
