// The main loop of a batch; see runner.h.
#include "batch/runner.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <iterator>
#include <list>
#include <map>
#include <optional>
#include <poll.h>
#include <set>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "base/descriptors.h"
#include "base/terminal.h"
#include "base/text.h"
#include "batch/differing_words.h"
#include "batch/run_process.h"
#include "batch/summary.h"
#include "run/job.h"

namespace berth::batch {
namespace {

using Clock = std::chrono::steady_clock;

// Between SIGTERM and SIGKILL after a time limit.
constexpr std::chrono::seconds kKillDelay(10);
constexpr std::chrono::seconds kRedrawInterval(1);
// One request to stop may arrive as several signals: `timeout` sends its signal to the process and
// to the group.
constexpr std::chrono::seconds kRepeatedSignalWindow(1);
// Clients in the queue notice when other jobs release GPUs. A smaller line of this batch that is
// not in the queue, but would fit now, is found only by checking again.
constexpr std::chrono::seconds kRecheckInterval(5);
// More lines of one type never start at the same moment.
constexpr std::size_t kMaxPerType = 64;

// A line that has a `berth run` process.
struct ActiveLine {
  std::size_t line;
  RunProcess process;
  std::string log;
  std::size_t log_begin = 0;
  LineResult result{};
  bool queued = false;        // has entered the queue (and may have left it)
  bool granted = false;       // has a lease now
  bool stopped = false;       // the batch has stopped it, not because of a time limit
  Clock::time_point since{};  // the last grant
  std::optional<Clock::time_point> limit{};  // when to send SIGTERM or SIGKILL: see kKillDelay
  std::string reason{};                      // why it waits
  std::optional<TimePoint> starts{};         // the estimate, while it waits
};

// The error kind of an exit code with which `berth run` itself fails, before it runs the command.
// The other lines would fail in the same way.
std::optional<ErrorKind> batch_error_kind(int code) {
  for (const ErrorKind kind :
       {ErrorKind::usage, ErrorKind::no_driver, ErrorKind::io, ErrorKind::permission}) {
    if (code == exit_code(kind)) return kind;
  }
  return std::nullopt;
}

class BatchRunner {
 public:
  BatchRunner(const BatchPlan& plan, LineOrder order, Joblog& joblog, ProgressDisplay& display,
              SignalQueue& signals)
      : plan_(plan),
        order_(std::move(order)),
        joblog_(joblog),
        display_(display),
        signals_(signals),
        run_times_(plan.known_seconds) {
    attempts_.resize(plan.lines.size());
    succeeded_before_ = plan.lines.size() - plan.to_run.size();
    for (const std::size_t line : plan.to_run) ++to_start_[plan.types[line]];
    inherited_.descriptors = raise_descriptor_limit();
    inherited_.mask = &signals_.previous_mask();
    // The reader of this process's output may exit first; the batch must continue.
    inherited_.sigpipe_handler = std::signal(SIGPIPE, SIG_IGN);
  }

  BatchResult run() {
    joblog_.write_begin(plan_.lines.size(), std::chrono::system_clock::now());
    for (start_lines(); !active_.empty(); start_lines()) {
      report_progress();
      wait();
      handle_signals();
      // All events are read before any end is handled: after a failure, stop_starting() ends the
      // lines that wait, and must know which ones have been granted.
      for (ActiveLine& one : active_) read_events(one);
      for (auto one = active_.begin(); one != active_.end();) one = update_line(one);
      // Running jobs are stopped only after the waiting lines have left the queue; otherwise those
      // would be granted the GPUs that the jobs release.
      if (result_.signal != 0 && waiting() == 0) terminate_running();
    }
    report_progress();
    display_.clear();
    result_.elapsed = Clock::now() - begin_;
    result_.interrupted = begun_.size();
    result_.not_started = plan_.lines.size() - succeeded_before_ - result_.succeeded -
                          result_.failed.size() - result_.interrupted;
    joblog_.write_end({succeeded_before_ + result_.succeeded, result_.failed.size(),
                       result_.interrupted, result_.not_started},
                      std::chrono::system_clock::now());
    return std::move(result_);
  }

 private:
  using Iterator = std::list<ActiveLine>::iterator;

  void report_progress() {
    const Progress now = progress();
    if (plan_.on_progress) plan_.on_progress(now);
    display_.update(now);
  }

  std::size_t waiting() const {
    return static_cast<std::size_t>(std::count_if(
        active_.begin(), active_.end(), [](const ActiveLine& one) { return !one.granted; }));
  }

  // Lines enter the queue one at a time, so that they are there in the right order.
  bool all_queued() const {
    return std::all_of(active_.begin(), active_.end(),
                       [](const ActiveLine& one) { return one.queued; });
  }

  // Whether a line may be started now. If not, an event or an end of an active line comes first.
  bool has_room() const {
    return !stopped_starting_ && active_.size() < plan_.jobs && waiting() < plan_.window &&
           all_queued();
  }

  // Afterwards there is no room, or no line to start, or next_check_ is in the future.
  void start_lines() {
    while (has_room()) {
      if (plan_.find_startable ? !start_fitting_lines() : !start_next(order_.next())) return;
    }
  }

  bool start_next(std::optional<std::size_t> line) {
    if (!line) return false;
    if (auto started = start(*line); !started) abort_batch(started.error());
    return true;
  }

  // Starts the lines that fit now, those with the most work first. If none fits, the first one
  // waits in the queue, and the scheduler reserves GPUs for it. False if nothing was started.
  bool start_fitting_lines() {
    if (start_next(order_.next_required())) return true;
    if (Clock::now() < next_check_) return false;
    next_check_ = Clock::now() + kRecheckInterval;
    bool any = false;
    for (const std::size_t line : plan_.find_startable(order_.known_lines(kMaxPerType))) {
      if (stopped_starting_ || active_.size() >= plan_.jobs || waiting() >= plan_.window) break;
      order_.remove(line);
      any = start_next(line);
    }
    return any || (waiting() == 0 && start_next(order_.next()));
  }

  Result<void> start(std::size_t index) {
    const BatchLine& line = plan_.lines[index];
    const unsigned attempt = ++attempts_[index];
    --to_start_[plan_.types[index]];
    const std::string name = log_name(line, plan_.lines.size());
    const std::string path = fmt::format("{}/{}", plan_.logs->path(), name);
    const UniqueFd log = plan_.logs->open_log(name, plan_.replace_logs && attempt == 1);
    if (!log) {
      return fail(ErrorKind::io,
                  fmt::format("batch: the log {} cannot be written: {}; choose another --logs",
                              in_quotes(path), std::strerror(errno)));
    }
    struct stat info {};
    ::fstat(log.get(), &info);
    if (info.st_size > 0) write_log_remark(log, fmt::format("attempt {}", attempt));
    ::fstat(log.get(), &info);
    RunProcess process = TRY(RunProcess::start(run_arguments(line), log, inherited_));
    active_.push_back({index, std::move(process), path, static_cast<std::size_t>(info.st_size)});
    active_.back().result.attempts = attempt;
    active_.back().result.log = path;
    return {};
  }

  std::vector<std::string> run_arguments(const BatchLine& line) const {
    std::vector<std::string> arguments = plan_.run_flags;
    if (!plan_.label.empty()) {
      arguments.push_back(
          fmt::format("--label={} {}/{}", plan_.label, line.number, plan_.lines.size()));
    }
    arguments.insert(arguments.end(), {"--", "/bin/sh", "-c", line.command});
    return arguments;
  }

  // Writes a line of Berth into the log of a job.
  static void write_log_remark(const UniqueFd& log, const std::string& text) {
    const std::string line = fmt::format("--- berth: {}\n", text);
    (void)!::write(log.get(), line.data(), line.size());
  }

  void wait() {
    std::vector<pollfd> fds{{signals_.fd(), POLLIN, 0}};
    std::optional<Clock::time_point> until;
    if (display_.is_live()) until = Clock::now() + kRedrawInterval;
    // Without room a check would start nothing, and next_check_ may be in the past: poll() would
    // return at once again and again.
    if (plan_.find_startable && order_.remaining() > 0 && has_room())
      until = std::min(until.value_or(next_check_), next_check_);
    for (const ActiveLine& one : active_) {
      fds.push_back({one.process.fd(), POLLIN, 0});
      if (one.limit) until = std::min(until.value_or(*one.limit), *one.limit);
    }
    int pause = -1;
    if (until) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*until - Clock::now());
      pause = static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1 << 30));
    }
    ::poll(fds.data(), fds.size(), pause);
  }

  void handle_signals() {
    while (const auto info = signals_.next()) {
      const auto number = static_cast<int>(info->ssi_signo);
      if (number == SIGCONT) display_.detach();
      if (number == SIGWINCH) display_.redraw();
      if (number == SIGINT || number == SIGTERM || number == SIGHUP) stop(number);
    }
  }

  void stop(int number) {
    if (result_.signal != 0) return kill_all(number);
    result_.signal = number;
    stopped_at_ = Clock::now();
    stop_starting();
    const std::size_t running = active_.size() - waiting();
    display_.show_notice(
        running == 0
            ? fmt::format("stopping; continue later with {}", plan_.resume_flags)
            : fmt::format("stopping: {} running {} SIGTERM (Ctrl-C again: SIGKILL); continue later "
                          "with {}",
                          running, running == 1 ? "job gets" : "jobs get", plan_.resume_flags));
  }

  // Ignores a second SIGHUP: a terminal that is closed sends several, without a user's intention.
  void kill_all(int number) {
    if (number == SIGHUP || Clock::now() - stopped_at_ < kRepeatedSignalWindow) return;
    result_.signal = number;
    for (ActiveLine& one : active_) {
      one.stopped = true;
      one.process.kill();
    }
    display_.show_notice("killing the running jobs");
  }

  void terminate_running() {
    for (ActiveLine& one : active_) {
      if (!one.stopped) terminate_line(one);
    }
  }

  static void terminate_line(ActiveLine& one) {
    one.stopped = true;
    one.process.terminate();
  }

  // Starts no more lines, and ends those that wait. Running jobs continue.
  void stop_starting() {
    stopped_starting_ = true;
    for (ActiveLine& one : active_) {
      read_events(one);  // it may have been granted: that event is written before the job starts
      if (!one.granted && !one.stopped) terminate_line(one);
    }
  }

  void abort_batch(const Error& error) {
    if (!result_.error) result_.error = error;
    stop_starting();
  }

  Iterator update_line(Iterator one) {
    // The exit is polled first: after it, all events are in the pipe.
    const auto status = one->process.poll_exit();
    read_events(*one);
    if (!status) {
      enforce_time_limit(*one);
      return std::next(one);
    }
    ActiveLine ended = std::move(*one);
    const auto next = active_.erase(one);
    finish(ended, exit_code(*status));
    return next;
  }

  void read_events(ActiveLine& one) {
    for (const RunEvent& event : one.process.read_events()) handle_event(one, event);
  }

  void handle_event(ActiveLine& one, const RunEvent& event) {
    const BatchLine& line = plan_.lines[one.line];
    if (event.kind == RunEvent::Kind::granted) next_check_ = {};
    if (event.kind != RunEvent::Kind::notice) one.queued = true;
    switch (event.kind) {
      case RunEvent::Kind::waiting:
        if (one.granted) add_gpu_time(one);  // it ran out of memory, and requests more
        one.granted = false;
        one.limit.reset();
        one.reason = event.text;
        one.starts = event.starts;
        break;
      case RunEvent::Kind::notice:
        display_.show_notice(line, event.text);
        break;
      case RunEvent::Kind::granted:
        if (one.granted) add_gpu_time(one);
        one.granted = true;
        if (plan_.on_granted) plan_.on_granted(event.lease, event.gpus);
        begun_.insert(one.line);
        one.since = Clock::now();
        one.result.begin = std::chrono::system_clock::now();
        one.result.lease = event.lease;
        one.result.gpus = event.gpus;
        // The SIGTERM before the grant came too early to reach the job.
        if (one.stopped || one.result.timed_out) one.process.terminate();
        if (one.result.timed_out) {
          one.limit = one.since + kKillDelay;
        } else if (plan_.limit && !one.stopped) {
          one.limit = one.since + *plan_.limit;
        }
        display_.show_started(line, event, one.result.attempts);
        break;
      case RunEvent::Kind::ended:
        one.result.out_of_memory = event.out_of_memory;
        break;
    }
  }

  // Adds the GPU time since the last grant.
  void add_gpu_time(const ActiveLine& one) {
    const auto gpus = std::count(one.result.gpus.begin(), one.result.gpus.end(), ',') + 1;
    result_.gpu_time += (Clock::now() - one.since) * gpus;
  }

  void enforce_time_limit(ActiveLine& one) {
    if (!one.limit || Clock::now() < *one.limit) return;
    if (std::exchange(one.result.timed_out, true)) {
      one.limit.reset();
      return one.process.kill();
    }
    one.limit = Clock::now() + kKillDelay;
    const UniqueFd log =
        plan_.logs->reopen_log(log_name(plan_.lines[one.line], plan_.lines.size()));
    write_log_remark(log, fmt::format("stopped after {} (--limit)", format_duration(*plan_.limit)));
    one.process.terminate();
  }

  void finish(ActiveLine& one, int code) {
    const BatchLine& line = plan_.lines[one.line];
    one.result.code = code;
    one.result.end = std::chrono::system_clock::now();
    if (one.granted) {
      add_gpu_time(one);
    } else if (one.result.begin == TimePoint{}) {
      one.result.begin = one.result.end;
    }
    order_.on_line_ended(one.line);
    run_times_.on_line_ended(plan_.types[one.line]);
    next_check_ = {};
    // A stopped line counts as not run, whatever its exit code: its work may be incomplete.
    if (one.stopped) return discard_log(one);
    const auto error_kind = one.result.lease.empty() ? batch_error_kind(code) : std::nullopt;
    if (error_kind) {
      abort_batch({*error_kind, read_run_error(one)});
      return discard_log(one);
    }
    if (one.granted) run_times_.add(plan_.types[one.line], Clock::now() - one.since);
    const bool again =
        !one.result.succeeded() && !stopped_starting_ && one.result.attempts <= plan_.retries;
    display_.show_ended(line, one.result, again);
    if (again) {
      ++to_start_[plan_.types[one.line]];
      return order_.requeue(one.line);
    }
    begun_.erase(one.line);
    joblog_.write_line(line, one.result);
    if (const auto problem = joblog_.problem(); problem && !std::exchange(warned_, true)) {
      display_.show_notice(*problem);
    }
    if (one.result.succeeded()) {
      ++result_.succeeded;
      return;
    }
    result_.failed.push_back({&line, one.result, one.log_begin});
    if (!plan_.keep_going && !stopped_starting_) {
      display_.show_notice(
          "a line failed: no more lines are started (use --keep-going to continue)");
      stop_starting();
    }
  }

  // For a line that was not run to its end: removes its log if that is empty.
  void discard_log(const ActiveLine& one) const {
    plan_.logs->remove_if_empty(log_name(plan_.lines[one.line], plan_.lines.size()));
  }

  // The error message of `berth run`, which is in the log.
  static std::string read_run_error(const ActiveLine& one) {
    const auto lines = last_lines(one.log, one.log_begin, 1);
    if (lines.empty()) return fmt::format("batch: a line could not be run; see {}", one.log);
    constexpr std::string_view kName = "berth: ";
    const std::string& line = lines.back();
    return line.starts_with(kName) ? line.substr(kName.size()) : line;
  }

  Progress progress() {
    Progress now;
    now.total = plan_.lines.size();
    now.succeeded = succeeded_before_ + result_.succeeded;
    now.failed = result_.failed.size();
    now.elapsed = Clock::now() - begin_;
    now.stopping = result_.signal != 0;
    const bool live = display_.is_live();
    if (live && !differing_words_) differing_words_.emplace(plan_.lines);
    for (const ActiveLine& one : active_) {
      if (one.granted) {
        const BatchLine& line = plan_.lines[one.line];
        now.running.push_back(
            {one.result.gpus, Clock::now() - one.since, line.number, line.command,
             live ? differing_words_->shorten(line.command, terminal_at(STDERR_FILENO).charset)
                  : ""});
      } else if (now.reason.empty()) {
        now.reason = one.reason;
        if (one.starts) now.starts_in = *one.starts - std::chrono::system_clock::now();
      }
    }
    std::stable_sort(now.running.begin(), now.running.end(),
                     [](const RunningJob& a, const RunningJob& b) { return a.lasted > b.lasted; });
    if (live) now.left = estimate_time_left(run_times_, to_start_, started_lines());
    return now;
  }

  std::vector<StartedLine> started_lines() const {
    std::vector<StartedLine> started;
    for (const ActiveLine& one : active_) {
      started.push_back({plan_.types[one.line]});
      if (one.granted) started.back().lasted = Clock::now() - one.since;
    }
    return started;
  }

  const BatchPlan& plan_;
  LineOrder order_;
  Joblog& joblog_;
  ProgressDisplay& display_;
  SignalQueue& signals_;
  InheritedState inherited_;
  std::list<ActiveLine> active_;  // in the order of their start
  std::vector<unsigned> attempts_;
  std::map<std::string, std::size_t> to_start_;  // number of lines of each type
  std::set<std::size_t> begun_;                  // lines that were granted GPUs and have no result
  std::optional<DifferingWords> differing_words_;  // once it was needed
  std::size_t succeeded_before_ = 0;
  BatchResult result_;
  RunTimes run_times_;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point next_check_{};  // when to call plan_.find_startable() again
  Clock::time_point stopped_at_{};  // time of the first signal
  bool stopped_starting_ = false;   // no more lines are started
  bool warned_ = false;             // about the joblog
};

}  // namespace

BatchResult run_batch(const BatchPlan& plan, LineOrder order, Joblog& joblog,
                      ProgressDisplay& display, SignalQueue& signals) {
  return BatchRunner(plan, std::move(order), joblog, display, signals).run();
}

}  // namespace berth::batch
