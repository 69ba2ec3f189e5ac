// Starts and stops the processes of a batch; see run_process.h.
#include "batch/run_process.h"

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
  return fail(ErrorKind::io, fmt::format("batch: cannot start a job: {}; try a smaller -j",
                                         std::strerror(reason)));
}

struct ChildFds {
  int input;
  int log;
  int events_write_end;
};

// Runs between fork() and exec, so it must not allocate memory.
[[noreturn]] void exec_run(char* const* argv, const ChildFds& fds, pid_t parent,
                           const InheritedState& inherited) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  // If the batch was killed before prctl(), no signal comes.
  if (::getppid() != parent) ::_exit(kExitNotRunnable);
  const bool ready = ::dup2(fds.input, STDIN_FILENO) >= 0 && ::dup2(fds.log, STDOUT_FILENO) >= 0 &&
                     ::dup2(fds.log, STDERR_FILENO) >= 0 &&
                     ::fcntl(fds.events_write_end, F_SETFD, 0) == 0;
  ::signal(SIGPIPE, inherited.sigpipe_handler);
  ::setrlimit(RLIMIT_NOFILE, &inherited.descriptors);
  ::sigprocmask(SIG_SETMASK, inherited.mask, nullptr);
  // The file that runs now, even if another version was installed in its place meanwhile.
  if (ready) ::execv("/proc/self/exe", argv);
  ::_exit(kExitNotRunnable);
}

}  // namespace

Result<RunProcess> RunProcess::start(const std::vector<std::string>& arguments, const UniqueFd& log,
                                     const InheritedState& inherited) {
  std::array<int, 2> pipe_fds{-1, -1};
  const UniqueFd input(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!input || ::pipe2(pipe_fds.data(), O_CLOEXEC) != 0) return cannot_start(errno);
  UniqueFd events_read_end(pipe_fds[0]);
  const UniqueFd events_write_end(pipe_fds[1]);
  ::fcntl(events_read_end.get(), F_SETFL, O_NONBLOCK);
  std::vector<std::string> command_line{"berth", "run",
                                        fmt::format("--event-fd={}", events_write_end.get())};
  command_line.insert(command_line.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  argv.reserve(command_line.size() + 1);
  for (std::string& text : command_line) argv.push_back(text.data());
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return cannot_start(errno);
  if (pid == 0) {
    exec_run(argv.data(), {input.get(), log.get(), events_write_end.get()}, parent, inherited);
  }
  // In parent and child: the group must exist before the parent kills it and before exec.
  ::setpgid(pid, pid);
  return RunProcess(pid, std::move(events_read_end));
}

std::vector<RunEvent> RunProcess::read_events() {
  std::vector<RunEvent> all;
  std::array<char, 4096> chunk{};
  for (;;) {
    const ssize_t got = ::read(events_.get(), chunk.data(), chunk.size());
    if (got <= 0) return all;
    for (RunEvent& event : parser_.parse_bytes({chunk.data(), static_cast<std::size_t>(got)})) {
      all.push_back(std::move(event));
    }
  }
}

std::optional<int> RunProcess::poll_exit() {
  int status = 0;
  const pid_t changed = ::waitpid(pid_, &status, WNOHANG);
  if (changed < 0 && errno == ECHILD) return kUnknownStatus;
  if (changed != pid_) return std::nullopt;
  if (WIFEXITED(status) || WIFSIGNALED(status)) return status;
  return std::nullopt;
}

void RunProcess::terminate() const {
  ::kill(pid_, SIGTERM);
}

void RunProcess::kill() const {
  ::kill(-pid_, SIGKILL);
}

}  // namespace berth::batch
