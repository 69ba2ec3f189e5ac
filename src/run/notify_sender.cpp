// Runs the programs that send a notification, each in a process of its own; see notify_sender.h.
#include "run/notify_sender.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <optional>
#include <poll.h>
#include <string_view>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "base/descriptors.h"
#include "base/environment.h"
#include "base/json.h"
#include "base/process.h"
#include "base/read_file.h"
#include "base/terminal.h"
#include "base/text.h"
#include "base/time_text.h"
#include "lease/job_environment.h"
#include "run/job.h"

extern char** environ;

namespace berth {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kTryTime(10);
// Shorter: after that, curl says what the server has answered so far.
constexpr seconds kCurlTime(9);
// Before the second and the third try.
constexpr std::array<seconds, 2> kPauses{seconds(2), seconds(8)};

constexpr const char* kProcessName = "berth-notify";
// A server that does not answer would otherwise cost a batch of many lines all processes that the
// user may have.
constexpr std::size_t kMaxSenders = 200;

// The processes of this user that send a notification now, with this one.
std::size_t count_senders() {
  const std::string name = fmt::format("{}\n", kProcessName);
  const std::vector<pid_t> pids = list_processes();
  return static_cast<std::size_t>(std::count_if(pids.begin(), pids.end(), [&](pid_t pid) {
    return read_process_owner(pid) == ::geteuid() &&
           read_proc_file(fmt::format("/proc/{}/comm", pid).c_str()) == name;
  }));
}

struct SenderProgram {
  std::string path;
  std::vector<std::string> arguments;  // with the name of the program
  std::string input;
  std::vector<std::pair<std::string, std::string>> variables{};
  bool reads_output = false;  // whether the result needs what it writes
};

struct ProgramResult {
  bool timed_out = false;
  int status = 0;  // as from waitpid()
  std::string output{};
};

// Why a try failed. The text has no part of a URL, a command, or what a program has written: all of
// them may contain secrets.
struct FailedTry {
  std::string reason;
  bool is_final = false;  // another try would fail in the same way
};

// The user's environment, without the variables of a lease around this process: the lease may have
// ended, and what a target starts must not count as its job.
std::vector<std::string> build_environment(const SenderProgram& program) {
  std::vector<std::string> variables;
  const bool in_lease = get_env("BERTH_LEASE").has_value();
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    const bool of_lease = in_lease && std::find(kLeaseVariables.begin(), kLeaseVariables.end(),
                                                name) != kLeaseVariables.end();
    const bool replaced = std::any_of(program.variables.begin(), program.variables.end(),
                                      [&](const auto& pair) { return pair.first == name; });
    if (!of_lease && !replaced) variables.emplace_back(text);
  }
  for (const auto& [name, value] : program.variables)
    variables.push_back(fmt::format("{}={}", name, value));
  return variables;
}

// A file without a name: a program that does not read its input cannot block the writer.
UniqueFd open_memory_file(std::string_view content) {
  UniqueFd file(::memfd_create("berth-notify", MFD_CLOEXEC));
  if (file && (!write_all(file.get(), content) || ::lseek(file.get(), 0, SEEK_SET) != 0))
    file.reset();
  return file;
}

ProgramResult run_program(const SenderProgram& program) {
  const UniqueFd input = open_memory_file(program.input);
  const UniqueFd output = open_memory_file("");
  std::vector<std::string> arguments = program.arguments;
  std::vector<std::string> variables = build_environment(program);
  const std::vector<char*> argv = exec_pointers(arguments);
  const std::vector<char*> envp = exec_pointers(variables);
  const std::string home(get_env_or_empty("HOME"));
  if (!input || !output) return {false, kExitNotRunnable << 8};
  const pid_t child = ::fork();
  if (child < 0) return {false, kExitNotRunnable << 8};
  if (child == 0) {
    ::setpgid(0, 0);
    ::dup2(input.get(), STDIN_FILENO);
    if (program.reads_output) ::dup2(output.get(), STDOUT_FILENO);
    const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    ::dup2(null, STDERR_FILENO);
    ::close_range(STDERR_FILENO + 1, ~0U, 0);
    if (home.empty() || ::chdir(home.c_str()) != 0) (void)!::chdir("/");
    ::execve(program.path.c_str(), argv.data(), envp.data());
    ::_exit(errno == ENOENT ? kExitNotFound : kExitNotRunnable);
  }
  ::setpgid(child, child);
  ProgramResult result;
  const UniqueFd handle = open_process(child);
  pollfd ended{handle.get(), POLLIN, 0};
  const auto deadline = std::chrono::steady_clock::now() + kTryTime;
  int ready = 0;
  do {
    const auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
    ready = ::poll(&ended, 1, static_cast<int>(std::max(left, milliseconds(0)).count()));
  } while (ready < 0 && errno == EINTR);
  result.timed_out = ready <= 0;
  if (result.timed_out) ::kill(-child, SIGKILL);
  while (::waitpid(child, &result.status, 0) < 0 && errno == EINTR) {
  }
  constexpr std::size_t kMaxOutput = 64;
  ::lseek(output.get(), 0, SEEK_SET);
  if (program.reads_output) result.output = read_to_end(output.get(), kMaxOutput).value_or("");
  return result;
}

std::string describe_status(int status) {
  if (WIFSIGNALED(status)) return fmt::format("it was ended by signal {}", WTERMSIG(status));
  return fmt::format("exit code {}", WEXITSTATUS(status));
}

// The exit codes of curl that need words (man curl).
std::optional<FailedTry> describe_curl_exit(int code) {
  constexpr int kUrlMalformed = 3;
  switch (code) {
    case kUrlMalformed:
      return FailedTry{"curl does not accept the URL", true};
    case 5:
    case 6:
      return FailedTry{"the name of the server was not found"};
    case 7:
      return FailedTry{"the server cannot be reached"};
    case 28:
      return FailedTry{fmt::format("no answer within {} s", kTryTime.count())};
    case 35:
      return FailedTry{"the TLS connection failed"};
    case 51:
    case 58:
    case 60:
    case 77:
      return FailedTry{"the certificate of the server is not trusted", true};
    default:
      return std::nullopt;
  }
}

bool is_accepted(const ProgramResult& result) {
  const int code = parse_integer<int>(result.output).value_or(0);
  return code >= 200 && code < 300;
}

// The server has accepted the notification, and the rest of its answer did not come: it ended too
// early, came too slowly, or was wrong.
bool is_answer_cut(int exit_code) {
  constexpr std::array kExitCodes{18, 28, 56, 92};
  return std::find(kExitCodes.begin(), kExitCodes.end(), exit_code) != kExitCodes.end();
}

std::optional<FailedTry> check_http_code(const std::string& text) {
  const int code = parse_integer<int>(text).value_or(0);
  constexpr int kTimeout = 408;
  constexpr int kTooMany = 429;
  const bool is_final = code >= 300 && code < 500 && code != kTimeout && code != kTooMany;
  return FailedTry{fmt::format("the server answered with the HTTP status {}", code), is_final};
}

std::optional<FailedTry> find_failure(NotifyTarget target, const ProgramResult& result) {
  if (result.timed_out) {
    return FailedTry{target == NotifyTarget::webhook
                         ? fmt::format("no answer within {} s", kTryTime.count())
                         : fmt::format("it did not end within {} s", kTryTime.count())};
  }
  const bool exited = WIFEXITED(result.status);
  const int code = exited ? WEXITSTATUS(result.status) : -1;
  if (target == NotifyTarget::webhook && is_accepted(result) && (code == 0 || is_answer_cut(code)))
    return std::nullopt;
  if (code == 0 && target == NotifyTarget::webhook) return check_http_code(result.output);
  if (code == 0) return std::nullopt;
  if (target == NotifyTarget::webhook && exited) {
    if (auto known = describe_curl_exit(code)) return known;
  }
  // A program that was killed may have sent the notification before.
  return FailedTry{describe_status(result.status),
                   !exited || code == kExitNotFound || code == kExitNotRunnable};
}

SenderProgram make_program(const Notifier::Target& target, const Notification& notification) {
  switch (target.kind) {
    case NotifyTarget::webhook:
      // -q: no ~/.curlrc, which could switch the check of certificates off.
      return {target.program,
              {"curl", "-q", "--config", "-"},
              format_curl_configuration(notification, target.webhook, kCurlTime),
              {},
              true};
    case NotifyTarget::mail:
      return {target.program, {"sendmail", "-oi", "-t"}, format_mail(notification, target.address)};
    case NotifyTarget::command:
    case NotifyTarget::bell:
      break;
  }
  // By the environment: `ps` shows the arguments of a process to all users.
  constexpr const char* kVariable = "BERTH_NOTIFY_COMMAND";
  auto variables = notification_variables(notification);
  variables.emplace_back(kVariable, target.command);
  return {target.program,
          {"sh", "-c", fmt::format("eval \"unset {0}\n${0}\"", kVariable)},
          to_ascii_json(notification_json(notification)) + "\n",
          std::move(variables)};
}

// A terminal that may be closed and opened again, as another one, while a notification is sent.
struct TerminalId {
  std::string path{};  // empty: there is none
  struct stat info {};
};

TerminalId find_terminal() {
  TerminalId terminal;
  std::array<char, 128> path{};
  if (::ttyname_r(STDERR_FILENO, path.data(), path.size()) == 0 &&
      ::fstat(STDERR_FILENO, &terminal.info) == 0)
    terminal.path = path.data();
  return terminal;
}

bool is_same_terminal(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_rdev == b.st_rdev &&
         a.st_uid == b.st_uid && a.st_ctim.tv_sec == b.st_ctim.tv_sec &&
         a.st_ctim.tv_nsec == b.st_ctim.tv_nsec;
}

// A closed terminal, or one that Ctrl-S has stopped, costs the message.
void write_to_terminal(const TerminalId& terminal, const std::string& text) {
  if (terminal.path.empty()) return;
  const UniqueFd file(
      ::open(terminal.path.c_str(), O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW));
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0 || !is_same_terminal(info, terminal.info)) return;
  (void)!::write(file.get(), text.data(), text.size());
}

class Sender {
 public:
  Sender(const Notifier::Target& target, const Notification& notification, std::string folder,
         TerminalId terminal)
      : target_(target),
        notification_(notification),
        folder_(std::move(folder)),
        terminal_(std::move(terminal)) {}

  void run() {
    if (count_senders() > kMaxSenders) {
      const FailedTry failure{
          fmt::format("{} other notifications of yours are still being sent", kMaxSenders)};
      log(failure.reason);
      return report(failure, 1);
    }
    const SenderProgram program = make_program(target_, notification_);
    for (std::size_t attempt = 0;; ++attempt) {
      const auto failure = find_failure(target_.kind, run_program(program));
      if (!failure) return log("sent");
      log(fmt::format("try {} failed: {}", attempt + 1, failure->reason));
      if (failure->is_final || attempt == kPauses.size()) return report(*failure, attempt + 1);
      ::poll(nullptr, 0, static_cast<int>(milliseconds(kPauses[attempt]).count()));
    }
  }

 private:
  // By one write(2), so that the lines of several processes do not mix.
  void log(const std::string& text) const {
    if (folder_.empty()) return;
    const UniqueFd file(::open((folder_ + "/notify.log").c_str(),
                               O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file) return;
    const std::string line =
        fmt::format("{} {} {}: {}\n", format_local_time(now()), to_string(target_.kind),
                    to_string(notification_.event), text);
    (void)!::write(file.get(), line.data(), line.size());
  }

  static TimePoint now() { return std::chrono::system_clock::now(); }

  void report(const FailedTry& failure, std::size_t tries) const {
    const std::string text =
        fmt::format("the notification '{}' was not sent by {}: {}{}",
                    to_string(notification_.event), to_string(target_.kind), failure.reason,
                    tries == 1 ? "" : fmt::format(" ({} tries)", tries));
    // stderr is the output of a detached job, another file, or /dev/null.
    print_message(text);
    write_to_terminal(terminal_, fmt::format("berth: {}\n", printable(text)));
  }

  const Notifier::Target& target_;
  const Notification& notification_;
  std::string folder_;
  TerminalId terminal_;
};

// Keeps nothing of the job: no session, descriptor, signal mask or ignored signal. Only a stderr
// that is a regular file stays, for the message about a failure: no reader waits for its end.
void leave_job(const rlimit& descriptors) {
  ::setsid();
  const int null = ::open("/dev/null", O_RDWR);
  ::dup2(null, STDIN_FILENO);
  ::dup2(null, STDOUT_FILENO);
  struct stat info {};
  if (::fstat(STDERR_FILENO, &info) != 0 || !S_ISREG(info.st_mode)) ::dup2(null, STDERR_FILENO);
  ::close_range(STDERR_FILENO + 1, ~0U, 0);
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGCHLD, SIGUSR1, SIGUSR2})
    ::signal(number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::setrlimit(RLIMIT_NOFILE, &descriptors);
  (void)!::chdir("/");
  ::prctl(PR_SET_NAME, kProcessName);
}

std::string cannot_start_message(const Notification& notification) {
  return fmt::format("the notification '{}' was not sent: no process can be started: {}",
                     to_string(notification.event), std::strerror(errno));
}

}  // namespace

void send_from_own_processes(const std::vector<const Notifier::Target*>& receivers,
                             const Notification& notification, const std::string& folder,
                             const rlimit& descriptors) {
  const TerminalId terminal = folder.empty() ? find_terminal() : TerminalId{};
  const pid_t starter = ::fork();
  if (starter < 0) {
    print_message(cannot_start_message(notification));
    return;
  }
  if (starter == 0) {
    leave_job(descriptors);
    for (const Notifier::Target* const target : receivers) {
      const pid_t sender = ::fork();
      if (sender < 0) print_message(cannot_start_message(notification));
      if (sender != 0) continue;
      Sender(*target, notification, folder, terminal).run();
      ::_exit(0);
    }
    ::_exit(0);
  }
  // Until the starter has closed its copies of this process's descriptors: with the lease's bell, a
  // job that ends now would seem to have left processes behind.
  while (::waitpid(starter, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace berth
