// Starts detached jobs and records what becomes of them; see detach.h.
#include "run/detach.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/descriptors.h"
#include "base/json.h"
#include "base/process.h"
#include "base/read_file.h"
#include "base/shell.h"
#include "base/terminal.h"
#include "base/text.h"
#include "lease/job_environment.h"
#include "run/grant_message.h"

namespace berth {
namespace {

// A driver may take long to start. The user gets the shell back before that.
constexpr std::chrono::seconds kMaxReadyTime(5);
constexpr char kReady = '!';
constexpr std::size_t kMaxRefusal = 64 << 10;

std::int64_t now_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::floor<std::chrono::milliseconds>(now).count();
}

// Closes what the user's shell has opened: a pipe that this process kept open would keep its reader
// waiting. The descriptors that Berth itself opens have FD_CLOEXEC.
void close_inherited_descriptors() {
  std::vector<int> inherited;
  std::error_code problem;
  std::filesystem::directory_iterator entry("/proc/self/fd", problem);
  for (; !problem && entry != std::filesystem::directory_iterator(); entry.increment(problem)) {
    const int fd = parse_integer<int>(entry->path().filename().native()).value_or(-1);
    if (fd > STDERR_FILENO && ::fcntl(fd, F_GETFD) == 0) inherited.push_back(fd);
  }
  for (const int fd : inherited) ::close(fd);
}

// What the signal handler of the job's process needs.
struct {
  pid_t process = 0;
  int events = -1;
} handled;

char* append_text(char* to, std::string_view text) {
  return std::copy(text.begin(), text.end(), to);
}

char* append_number(char* to, std::int64_t number) {
  std::array<char, 24> digits{};
  auto begin = digits.end();
  do {
    *--begin = static_cast<char>('0' + number % 10);
    number /= 10;
  } while (number > 0);
  return std::copy(begin, digits.end(), to);
}

// Where the job's process waits, it reads signals by a SignalQueue. This is for those that arrive
// elsewhere, such as during its start: the exit code of a job that was cancelled is not unknown.
// Calls only functions that are safe in a signal handler.
void record_signal(int number) {
  if (::getpid() != handled.process) {  // a child that has not called exec yet
    ::signal(number, SIG_DFL);
    ::raise(number);
    return;
  }
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  std::array<char, 128> line{};
  char* end = append_text(line.data(), R"({"event":"finished","code":)");
  end = append_number(end, 128 + number);
  end = append_text(end, R"(,"message":"","at_ms":)");
  end = append_number(end, now.tv_sec * std::int64_t{1'000} + now.tv_nsec / 1'000'000);
  end = append_text(end, "}\n");
  const auto written =
      ::write(handled.events, line.data(), static_cast<std::size_t>(end - line.data()));
  ::_exit(written < 0 ? 1 : 128 + number);
}

constexpr std::array kEndSignals{SIGINT, SIGTERM, SIGHUP, SIGQUIT};

void record_signals(const NewJobFolder& folder) {
  handled.process = ::getpid();
  handled.events = folder.events.get();
  for (const int number : kEndSignals) {
    struct sigaction action {};
    if (::sigaction(number, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = record_signal;
    ::sigaction(number, &action, nullptr);
  }
}

void block_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : kEndSignals) ::sigaddset(&set, number);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

// Leaves the session of the user's terminal, whose end would send SIGHUP.
void leave_session(const NewJobFolder& folder) {
  ::setsid();
  close_inherited_descriptors();
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::dup2(null, STDIN_FILENO);
  ::dup2(folder.output.get(), STDOUT_FILENO);
  ::dup2(folder.output.get(), STDERR_FILENO);
}

// What the process that the user started prints. Returns its exit code: a script that cannot read
// the id must not go on as if it had it, though the job runs.
int show_job(const NewJobFolder& folder) {
  const std::string& id = folder.spec.id;
  print(id + "\n");
  const bool is_printed = std::fflush(stdout) == 0;
  const int reason = errno;
  print_message(
      fmt::format("job {0} runs detached; its output: {1} (to follow it: berth logs -f {0})", id,
                  shell_quote(folder.path + "/output")));
  if (is_printed) return 0;
  print_message(
      fmt::format("the id of job {0} cannot be written to stdout ({1}), but the job runs; to end "
                  "it: berth cancel {0}",
                  id, std::strerror(reason)));
  std::clearerr(stdout);  // it is reported
  return exit_code(ErrorKind::io);
}

// What a job wrote that ended before it was in the queue: why it was refused.
std::string read_refusal(const std::string& path) {
  const UniqueFd output(::open((path + "/output").c_str(), O_RDONLY | O_CLOEXEC));
  return output ? read_to_end(output.get(), kMaxRefusal).value_or("") : "";
}

// The job was in the queue, or the time is over; false: its process ended before.
bool wait_until_ready(int socket) {
  pollfd entry{socket, POLLIN, 0};
  const auto ms = std::chrono::milliseconds(kMaxReadyTime).count();
  while (::poll(&entry, 1, static_cast<int>(ms)) < 0 && errno == EINTR) {
  }
  if (entry.revents == 0) return true;
  char byte = 0;
  return ::read(socket, &byte, 1) == 1;
}

int finish_parent(NewJobFolder folder, UniqueFd ready) {
  folder.alive.reset();  // from here on, only the child has the lock
  if (wait_until_ready(ready.get())) {
    return show_job(folder);
  }
  const auto job = find_job(folder.spec.id);
  const auto finish = job ? job->finish : std::nullopt;
  if (finish && finish->message.empty()) {  // it was so quick that it has ended
    return show_job(folder);
  }
  print_error(read_refusal(folder.path));
  if (!finish)
    print_message("the process of the job was killed before the job was in the queue; try again");
  remove_job_folder(folder.path);
  return finish ? finish->code : exit_code(ErrorKind::io);
}

}  // namespace

JobRecorder::JobRecorder(NewJobFolder folder, UniqueFd ready)
    : folder_(std::move(folder)), ready_(std::move(ready)) {
  const auto stat = read_process_stat(::getpid());
  write_event({{"event", "started"},
               {"pid", ::getpid()},
               {"start_ticks", stat ? stat->start_ticks : 0},
               {"pid_namespace", pid_namespace()}});
}

// By one write(2): after a kill, the file ends with a whole line.
void JobRecorder::write_event(Json event) {
  if (!is_active()) return;
  event["at_ms"] = now_ms();
  (void)write_all(folder_.events.get(), to_ascii_json(event) + "\n");
}

void JobRecorder::report_ready() {
  if (!ready_) return;
  // Not a pipe, which would raise SIGPIPE if the process that the user started is gone.
  (void)::send(ready_.get(), &kReady, 1, MSG_NOSIGNAL);
  ready_.reset();
}

void JobRecorder::keep_ready_until_exit() {
  (void)ready_.release();
}

void JobRecorder::write_held(const std::string& reason) {
  write_event({{"event", "held"}, {"reason", reason}});
  if (!reason.empty()) report_ready();
}

WaitCallbacks JobRecorder::wait_callbacks() {
  if (!is_active()) return {};
  return {[this](const WaitStatus&) { report_ready(); },
          [](const std::string& text) { print_message(text); }};
}

void JobRecorder::write_granted(Lease& lease, const std::optional<ProfileOptions>& options) {
  if (!is_active()) return;
  write_line_granted(lease.id(), format_gpu_indices(lease.host_gpus(), lease.record().uuids));
  print_message(format_grant(lease, false, options));
  report_ready();
}

void JobRecorder::write_remote_granted(const std::string& lease, const std::string& host) {
  if (!is_active()) return;
  write_event({{"event", "granted"}, {"lease", lease}, {"gpus", ""}, {"host", host}});
  print_message(fmt::format("granted on {} (lease {})", printable(host), printable(lease)));
  report_ready();
}

void JobRecorder::write_line_granted(const std::string& lease, const std::string& gpus) {
  write_event({{"event", "granted"}, {"lease", lease}, {"gpus", gpus}});
}

void JobRecorder::write_progress(const BatchCounts& counts) {
  if (!is_active() || last_counts_ == counts) return;
  last_counts_ = counts;
  const Json json{{"total", counts.total},
                  {"succeeded", counts.succeeded},
                  {"failed", counts.failed},
                  {"running", counts.running}};
  const std::string path = folder_.path + "/progress.json";
  const std::string unfinished = path + ".new";
  const UniqueFd file(::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (file && write_all(file.get(), to_ascii_json(json) + "\n"))
    (void)::rename(unfinished.c_str(), path.c_str());
}

void JobRecorder::write_finished(int code, const std::string& message) {
  write_event({{"event", "finished"}, {"code", code}, {"message", message}});
}

JobSpec make_job_spec(JobKind kind, std::vector<std::string> command, std::string label) {
  const HarbourLocation harbour = harbour_location();
  std::error_code problem;
  return {"",
          kind,
          std::move(command),
          std::move(label),
          std::filesystem::current_path(problem).string(),
          harbour.host,
          harbour.path,
          {}};
}

Result<int> run_detached(JobSpec spec, const std::function<Result<int>(JobRecorder&)>& body) {
  NewJobFolder folder = TRY(make_job_folder(std::move(spec)));
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    const int reason = errno;
    remove_job_folder(folder.path);
    return fail(ErrorKind::io,
                fmt::format("cannot make a pair of sockets: {}", std::strerror(reason)));
  }
  UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  std::fflush(nullptr);  // the child must not write what this process has not written yet
  const pid_t child = ::fork();
  if (child < 0) {
    const int reason = errno;
    remove_job_folder(folder.path);
    return fail(ErrorKind::io,
                fmt::format("the job's process cannot be started: {}; check 'ulimit -u'",
                            std::strerror(reason)));
  }
  if (child > 0) {
    writing.reset();
    return finish_parent(std::move(folder), std::move(reading));
  }
  reading.reset();
  leave_session(folder);
  record_signals(folder);
  ::setenv("BERTH_JOB", folder.spec.id.c_str(), 1);
  ::setenv("PYTHONUNBUFFERED", "1", 0);  // so that `berth logs -f` shows output as it is written
  JobRecorder recorder(std::move(folder), std::move(writing));
  auto result = body(recorder);
  recorder.keep_ready_until_exit();
  block_signals();  // the end is recorded once
  if (result) {
    recorder.write_finished(*result, "");
  } else {
    recorder.write_finished(exit_code(result.error().kind), result.error().message);
  }
  remove_expired_jobs();  // reads all folders, so not while the user waits
  return result;
}

}  // namespace berth
