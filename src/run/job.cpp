// Finding, starting and supervising a job; see job.h.
#include "run/job.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <string_view>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "base/environment.h"
#include "base/process.h"
#include "base/shell.h"
#include "base/simulation.h"
#include "base/text.h"

extern char** environ;

namespace berth {
namespace {

using Clock = std::chrono::steady_clock;

bool is_file(const std::string& path) {
  struct stat attributes {};
  return ::stat(path.c_str(), &attributes) == 0 && S_ISREG(attributes.st_mode);
}

// "NAME=value", as a shell takes it before a command.
bool is_assignment(std::string_view word) {
  const std::size_t end = word.find('=');
  if (end == 0 || end == std::string_view::npos) return false;
  return std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(end),
                     [](unsigned char letter) { return std::isalnum(letter) || letter == '_'; });
}

// The command that runs the file of a script: "python train.py".
std::string interpreter_command(const std::string& file) {
  const std::string_view name = file;
  const char* const interpreter = name.ends_with(".py")   ? "python"
                                  : name.ends_with(".sh") ? "sh"
                                                          : nullptr;
  return interpreter == nullptr ? "" : fmt::format("{} {}", interpreter, shell_quote(file));
}

std::string not_found_remedy(const std::string& name) {
  if (name.empty()) return "the command is an empty word; check the variables in it";
  if (is_assignment(name)) return "to set a variable for the job, write: env NAME=VALUE COMMAND";
  if (name.find(' ') != std::string::npos)
    return "the whole command is one word; write it without the quotes, or: sh -c 'COMMAND'";
  if (name.find('/') == std::string::npos && is_file(name)) {
    const std::string command = interpreter_command(name);
    return fmt::format("to run the file in this folder, write: {}",
                       command.empty() ? shell_quote("./" + name) : command);
  }
  if (name.find_first_not_of("0123456789,") == std::string::npos)
    return "for a number of GPUs write -n 2, for certain GPUs --gpu 0,1";
  if (name.find('/') != std::string::npos) return "check the path";
  return "check that it is installed and in the PATH";
}

ProgramError make_program_error(const std::string& name, int reason) {
  if (reason == ENOENT || reason == ENOTDIR) {
    return {kExitNotFound,
            fmt::format("{} was not found; {}", in_quotes(name), not_found_remedy(name))};
  }
  if (reason == EACCES && is_file(name)) {
    const std::string command = interpreter_command(name);
    return {kExitNotRunnable,
            fmt::format("{} is not executable; make it so with 'chmod +x {}'{}", in_quotes(name),
                        shell_quote(name), command.empty() ? "" : ", or write: " + command)};
  }
  return {kExitNotRunnable,
          fmt::format("{} cannot be run: {}", in_quotes(name), std::strerror(reason))};
}

// 0 if the file can be run, else an errno.
int check_runnable(const std::string& path) {
  struct stat attributes {};
  if (::stat(path.c_str(), &attributes) != 0) return errno;
  if (S_ISDIR(attributes.st_mode)) return EISDIR;
  if (!S_ISREG(attributes.st_mode)) return EACCES;
  return ::access(path.c_str(), X_OK) == 0 ? 0 : errno;
}

// "/usr/bin/python3" of a script that begins with "#!/usr/bin/python3 -u"; empty for other files.
std::string read_interpreter(const std::string& path) {
  constexpr std::size_t kMaxLine = 256;  // what the kernel reads of it
  constexpr std::string_view kBlanks = " \t";
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::array<char, kMaxLine> buffer{};
  const ssize_t got = file ? ::read(file.get(), buffer.data(), buffer.size()) : 0;
  std::string_view line(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  if (!line.starts_with("#!")) return "";
  line = line.substr(2, line.find('\n') - 2);
  line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
  return std::string(line.substr(0, line.find_first_of(kBlanks)));
}

// The error if the script `file`, which was found for `name`, has an interpreter that does not
// exist. The kernel reports it as if the script itself did not exist.
std::optional<ProgramError> check_interpreter(const std::string& name, const std::string& file) {
  const std::string interpreter = read_interpreter(file);
  if (interpreter.empty() || ::access(interpreter.c_str(), F_OK) == 0 || errno != ENOENT)
    return std::nullopt;
  const char* const remedy = interpreter.ends_with('\r')
                                 ? "convert the line ends of the script, which are those of Windows"
                                 : "install it, or correct the first line of the script";
  return ProgramError{kExitNotFound,
                      fmt::format("{} cannot be run, since its interpreter {} was not found; {}",
                                  in_quotes(name), in_quotes(interpreter), remedy)};
}

std::vector<std::string> build_environment(const Job& job) {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    const bool replaced = std::any_of(job.environment.begin(), job.environment.end(),
                                      [&](const auto& pair) { return pair.first == name; });
    if (!replaced) variables.emplace_back(text);
  }
  for (const auto& [name, value] : job.environment) {
    variables.push_back(fmt::format("{}={}", name, value));
  }
  return variables;
}

bool is_from_other_process(const signalfd_siginfo& info, pid_t job) {
  const auto sender = static_cast<pid_t>(info.ssi_pid);
  return info.ssi_code > 0 || (sender != job && sender != ::getpid());
}

// The kernel sends the signals of the terminal to the whole group, job included. Only a signal that
// another process sent to berth must be passed on.
bool is_sent_to_berth_only(const signalfd_siginfo& info, pid_t job) {
  return info.ssi_code <= 0 && is_from_other_process(info, job);
}

// Signals that a terminal sends to a whole group.
bool is_terminal_signal(int number) {
  return number == SIGINT || number == SIGQUIT || number == SIGHUP;
}

bool requests_termination(const signalfd_siginfo& info, pid_t job) {
  const auto number = static_cast<int>(info.ssi_signo);
  const bool ends = number == SIGTERM || is_terminal_signal(number);
  return ends && is_from_other_process(info, job);
}

// A job that stops itself (a program in raw mode that handles Ctrl-Z) stops berth too, so that the
// shell gets its terminal back; `fg` continues both. Only for stops that come from the terminal
// that berth runs in the foreground of: a job that was stopped by kill -STOP may be continued by
// kill -CONT, and berth must then notice its end.
void stop_with_job(pid_t job, int status) {
  if (WSTOPSIG(status) == SIGSTOP || ::tcgetpgrp(STDERR_FILENO) != ::getpgrp()) return;
  // After a Ctrl-Z that stopped both, `fg` may have continued berth a moment before the job.
  constexpr useconds_t kContinueDelayUs = 20'000;
  ::usleep(kContinueDelayUs);
  if (::waitpid(job, &status, WNOHANG | WCONTINUED) > 0 && WIFCONTINUED(status)) return;
  ::raise(SIGSTOP);
}

}  // namespace

std::variant<std::string, ProgramError> find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    const int reason = check_runnable(name);
    if (reason != 0) return make_program_error(name, reason);
    if (auto problem = check_interpreter(name, name)) return std::move(*problem);
    return name;
  }
  std::string_view path = get_env("PATH").value_or("/bin:/usr/bin");
  int reason = ENOENT;
  std::optional<ProgramError> script_problem;
  while (!name.empty()) {
    const std::string_view folder = path.substr(0, path.find(':'));
    std::string file = fmt::format("{}/{}", folder.empty() ? "." : folder, name);
    const int problem = check_runnable(file);
    if (problem == 0) {
      auto missing = check_interpreter(name, file);
      if (!missing) return file;
      if (!script_problem) script_problem = std::move(missing);
    }
    // EACCES counts only if the file is there. A folder of the PATH that we may not enter says
    // nothing: a typing error must still be reported as "not found".
    if (problem == EACCES && ::access(file.c_str(), F_OK) == 0) reason = EACCES;
    if (folder.size() == path.size()) break;
    path.remove_prefix(folder.size() + 1);
  }
  if (script_problem) return std::move(*script_problem);
  return make_program_error(name, reason);
}

std::optional<ProgramError> check_program(const std::string& name) {
  auto found = find_program(name);
  if (auto* problem = std::get_if<ProgramError>(&found)) return std::move(*problem);
  return std::nullopt;
}

std::variant<pid_t, ProgramError> start_job(const Job& job, const Lease& lease,
                                            const SignalQueue& signals) {
  // Not posix_spawnp(): to find a program by failing calls of execve() takes ten times as long.
  std::string path = job.program;
  if (path.empty() || check_runnable(path) != 0) {
    auto found = find_program(job.command.front());
    if (auto* problem = std::get_if<ProgramError>(&found)) return std::move(*problem);
    path = std::move(std::get<std::string>(found));
  }
  const UniqueFd bell = lease.make_inheritable_bell();
  std::vector<std::string> arguments = job.command;
  std::vector<std::string> variables = build_environment(job);
  std::vector<char*> argv = exec_pointers(arguments);
  std::vector<char*> envp = exec_pointers(variables);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  ::posix_spawnattr_setsigmask(&attributes, &signals.previous_mask());
  rlimit own_limit{};
  ::getrlimit(RLIMIT_NOFILE, &own_limit);
  ::setrlimit(RLIMIT_NOFILE, &job.descriptors);
  pid_t pid = -1;
  int problem =
      bell ? ::posix_spawn(&pid, path.c_str(), nullptr, &attributes, argv.data(), envp.data())
           : EMFILE;
  if (problem == ENOEXEC) {  // a script without #!, which execvp() passes to the shell
    std::string shell = "/bin/sh";
    std::vector<char*> with_shell{shell.data(), path.data()};
    with_shell.insert(with_shell.end(), argv.begin() + 1, argv.end());
    problem =
        ::posix_spawn(&pid, shell.c_str(), nullptr, &attributes, with_shell.data(), envp.data());
  }
  ::setrlimit(RLIMIT_NOFILE, &own_limit);
  ::posix_spawnattr_destroy(&attributes);
  if (problem == 0) return pid;
  const std::string& name = job.command.front();
  if (problem == ENOENT && is_file(path)) {
    return ProgramError{kExitNotFound,
                        fmt::format("{} cannot be run, since the loader that it names was not "
                                    "found; check that the program is made for this system",
                                    in_quotes(name))};
  }
  return make_program_error(name, problem);
}

int exit_code(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

JobEnd supervise(pid_t job, Lease& lease, SignalQueue& signals, const JobHooks& hooks) {
  // A watch for deletion is expensive: the kernel takes milliseconds to remove an inotify watch.
  // Jobs shorter than this run without one.
  constexpr std::chrono::seconds kMaxShortJobTime(1);
  constexpr std::chrono::seconds kAuditInterval(60);
  bool short_job = true;
  auto audit = Clock::now() + kMaxShortJobTime;
  bool interrupted = false;
  int lifeline = hooks.lifeline;
  const auto make_job_end = [&](int status) {
    // The signal that ended the job may still be unread; there is no job left to pass it on to.
    while (const auto info = signals.next()) interrupted |= requests_termination(*info, job);
    return JobEnd{status, interrupted};
  };
  for (;;) {
    int status = 0;
    // Repeat until no change is left: one SIGCHLD may stand for several changes.
    for (pid_t changed = 1; changed > 0;) {
      changed = ::waitpid(job, &status, WNOHANG | WUNTRACED);
      if (changed < 0 && errno == ECHILD) return make_job_end(kUnknownStatus);
      if (changed <= 0) break;
      if (WIFEXITED(status) || WIFSIGNALED(status)) return make_job_end(status);
      if (WIFSTOPPED(status)) stop_with_job(job, status);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(audit - Clock::now());
    const auto pause = std::max(std::chrono::milliseconds(0),
                                std::min({left, hooks.work_if_due(), lease.maintain_heartbeat()}));
    const int deletion = short_job ? -1 : lease.deletion_watch_fd();
    std::array<pollfd, 3> watched{
        {{signals.fd(), POLLIN, 0}, {deletion, POLLIN, 0}, {lifeline, 0, 0}}};
    ::poll(watched.data(), watched.size(), static_cast<int>(pause.count()));
    while (const auto info = signals.next()) {
      const auto number = static_cast<int>(info->ssi_signo);
      interrupted |= requests_termination(*info, job);
      if (number != SIGCHLD && is_sent_to_berth_only(*info, job)) {
        const bool all = hooks.whole_group || (hooks.lifeline >= 0 && is_terminal_signal(number));
        ::kill(all ? 0 : job, number);
      }
    }
    if (watched[2].revents != 0) {
      lifeline = -1;
      interrupted = true;
      ::kill(0, SIGHUP);
    }
    const bool due = Clock::now() >= audit;
    if (!due && watched[1].revents == 0) continue;
    if (due && std::exchange(short_job, false)) hooks.on_long_run();
    if (due) audit = Clock::now() + audit_interval(kAuditInterval);
    if (const auto notice = lease.restore_if_deleted()) hooks.on_notice(*notice);
  }
}

}  // namespace berth
