// The loop of a batch; see runner.h.
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
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "base/descriptors.h"
#include "base/text.h"
#include "batch/child.h"
#include "batch/summary.h"
#include "run/job.h"

namespace berth::batch {
namespace {

using Clock = std::chrono::steady_clock;

// Between the SIGTERM of a time limit and the SIGKILL.
constexpr std::chrono::seconds kGrace(10);
constexpr std::chrono::seconds kTick(1);
// One wish may come as several signals: `timeout` sends its own to the process and to the group.
constexpr std::chrono::seconds kSameWish(1);
// What others give back is seen by who waits in the queue; a smaller line that would fit, only so.
constexpr std::chrono::seconds kLookAgain(5);
// More of one type than this do not start at the same moment.
constexpr std::size_t kOfOneType = 64;

// A line whose `berth run` is there.
struct Active {
  std::size_t line;
  Child child;
  std::string log;
  std::size_t log_begin = 0;
  LineEnd end{};
  bool placed = false;  // it stands in the queue, or has stood there
  bool granted = false;
  bool stopped = false;  // asked to end by us, for no fault of its own
  Clock::time_point since{};
  std::optional<Clock::time_point> limit{};  // when it is asked to end, or killed
  std::string reason{};
};

// Did `berth run` itself fail, before the line could? Then so would every other one.
std::optional<ErrorKind> own_failure(int code) {
  for (const ErrorKind kind :
       {ErrorKind::usage, ErrorKind::no_driver, ErrorKind::io, ErrorKind::permission}) {
    if (code == exit_code(kind)) return kind;
  }
  return std::nullopt;
}

class Runner {
 public:
  Runner(const BatchPlan& plan, LineOrder order, Joblog& joblog, BatchView& view,
         SignalQueue& signals)
      : plan_(plan), order_(std::move(order)), joblog_(joblog), view_(view), signals_(signals) {
    attempts_.resize(plan.lines.size());
    succeeded_before_ = plan.lines.size() - plan.to_run.size();
    for (const std::size_t line : plan.to_run) ++to_start_[plan.types[line]];
    inherited_.descriptors = allow_many_descriptors();
    inherited_.mask = &signals_.mask_before();
    // Who reads our output may leave before us; the batch goes on.
    inherited_.on_pipe = std::signal(SIGPIPE, SIG_IGN);
  }

  BatchResult run() {
    joblog_.begin(plan_.lines.size(), std::chrono::system_clock::now());
    for (fill(); !active_.empty(); fill()) {
      view_.show(progress());
      wait();
      obey_signals();
      // All of them first: one that fails ends those that are known to wait.
      for (Active& one : active_) listen(one);
      for (auto one = active_.begin(); one != active_.end();) one = look_after(one);
      // Not before the queue is left: who waits there would be granted what they give back.
      if (result_.signal != 0 && waiting() == 0) end_running();
    }
    view_.finish();
    result_.elapsed = Clock::now() - begin_;
    result_.not_run =
        plan_.lines.size() - succeeded_before_ - result_.succeeded - result_.failed.size();
    joblog_.finish(succeeded_before_ + result_.succeeded, result_.failed.size(), result_.not_run,
                   std::chrono::system_clock::now());
    return std::move(result_);
  }

 private:
  using Place = std::list<Active>::iterator;

  std::size_t waiting() const {
    return static_cast<std::size_t>(std::count_if(active_.begin(), active_.end(),
                                                  [](const Active& one) { return !one.granted; }));
  }

  // One after the other, so that they stand in the queue in their order.
  bool all_placed() const {
    return std::all_of(active_.begin(), active_.end(),
                       [](const Active& one) { return one.placed; });
  }

  // May a line be started now? Else one of those that are there must tell or end first.
  bool has_room() const {
    return !closed_ && active_.size() < plan_.jobs && waiting() < plan_.window && all_placed();
  }

  // Afterwards there is no room, or no line to start, or look_again_ is to come.
  void fill() {
    while (has_room()) {
      if (plan_.fitting ? !start_fitting() : !start_next(order_.next())) return;
    }
  }

  bool start_next(std::optional<std::size_t> line) {
    if (!line) return false;
    if (auto started = start(*line); !started) give_up(started.error());
    return true;
  }

  // What fits now, the largest first; where nothing does, the largest waits in the queue, and the
  // scheduler keeps a place for it. False if there is nothing to do before something changes.
  bool start_fitting() {
    if (start_next(order_.next_in_any_case())) return true;
    if (Clock::now() < look_again_) return false;
    look_again_ = Clock::now() + kLookAgain;
    bool any = false;
    for (const std::size_t line : plan_.fitting(order_.known(kOfOneType))) {
      if (closed_ || active_.size() >= plan_.jobs || waiting() >= plan_.window) break;
      order_.take(line);
      any = start_next(line);
    }
    return any || (waiting() == 0 && start_next(order_.next()));
  }

  Result<void> start(std::size_t index) {
    const Line& line = plan_.lines[index];
    const unsigned attempt = ++attempts_[index];
    --to_start_[plan_.types[index]];
    const std::string name = log_name(line, plan_.lines.size());
    const std::string path = fmt::format("{}/{}", plan_.logs->path(), name);
    const UniqueFd log = plan_.logs->open_log(name, plan_.anew && attempt == 1);
    if (!log) {
      return fail(ErrorKind::io,
                  fmt::format("batch: the log {} cannot be written: {}; choose another --logs",
                              in_quotes(path), std::strerror(errno)));
    }
    struct stat about {};
    ::fstat(log.get(), &about);
    if (about.st_size > 0) remark(log, fmt::format("attempt {}", attempt));
    ::fstat(log.get(), &about);
    auto child = Child::start(words_for(line), log, inherited_);
    if (!child) return tl::make_unexpected(child.error());
    active_.push_back({index, std::move(*child), path, static_cast<std::size_t>(about.st_size)});
    active_.back().end.attempts = attempt;
    active_.back().end.log = path;
    return {};
  }

  std::vector<std::string> words_for(const Line& line) const {
    std::vector<std::string> words = plan_.run_flags;
    if (!plan_.label.empty()) {
      words.push_back(
          fmt::format("--label={} {}/{}", plan_.label, line.number, plan_.lines.size()));
    }
    words.insert(words.end(), {"--", "/bin/sh", "-c", line.command});
    return words;
  }

  // A line of berth's own in a log.
  static void remark(const UniqueFd& log, const std::string& text) {
    const std::string line = fmt::format("--- berth: {}\n", text);
    (void)!::write(log.get(), line.data(), line.size());
  }

  void wait() {
    std::vector<pollfd> watched{{signals_.fd(), POLLIN, 0}};
    std::optional<Clock::time_point> until;
    if (view_.live()) until = Clock::now() + kTick;
    // Without room a look would start nothing, and fill() leaves look_again_ in the past.
    if (plan_.fitting && order_.left() > 0 && has_room())
      until = std::min(until.value_or(look_again_), look_again_);
    for (const Active& one : active_) {
      watched.push_back({one.child.fd(), POLLIN, 0});
      if (one.limit) until = std::min(until.value_or(*one.limit), *one.limit);
    }
    int pause = -1;
    if (until) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*until - Clock::now());
      pause = static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1 << 30));
    }
    ::poll(watched.data(), watched.size(), pause);
  }

  void obey_signals() {
    while (const auto info = signals_.next()) {
      const auto number = static_cast<int>(info->ssi_signo);
      if (number == SIGCONT) view_.forget();
      if (number == SIGWINCH) view_.redraw();
      if (number == SIGINT || number == SIGTERM || number == SIGHUP) stop(number);
    }
  }

  void stop(int number) {
    if (result_.signal != 0) return stop_again(number);
    result_.signal = number;
    stopped_at_ = Clock::now();
    close();
    const std::size_t running = active_.size() - waiting();
    view_.notice(
        running == 0
            ? std::string("stopping; --resume goes on later")
            : fmt::format("stopping: {} running {} asked to end (SIGTERM); Ctrl-C again kills at "
                          "once; --resume goes on later",
                          running, running == 1 ? "job is" : "jobs are"));
  }

  // A terminal that is closed sends more than one SIGHUP, and nobody is there to mean it.
  void stop_again(int number) {
    if (number == SIGHUP || Clock::now() - stopped_at_ < kSameWish) return;
    result_.signal = number;
    for (Active& one : active_) {
      one.stopped = true;
      one.child.kill();
    }
    view_.notice("killing what still runs");
  }

  void end_running() {
    for (Active& one : active_) {
      if (!one.stopped) ask_to_end(one);
    }
  }

  static void ask_to_end(Active& one) {
    one.stopped = true;
    one.child.stop();
  }

  // Starts nothing more, and leaves the queue; what runs goes on.
  void close() {
    closed_ = true;
    for (Active& one : active_) {
      listen(one);  // it may run by now, which it tells before it does
      if (!one.granted && !one.stopped) ask_to_end(one);
    }
  }

  void give_up(const Error& error) {
    if (!result_.error) result_.error = error;
    close();
  }

  Place look_after(Place one) {
    // Its end first: then all that it told is there to be read.
    const auto status = one->child.end();
    listen(*one);
    if (!status) {
      keep_to_limit(*one);
      return std::next(one);
    }
    Active ended = std::move(*one);
    const auto next = active_.erase(one);
    finish(ended, exit_code(*status));
    return next;
  }

  void listen(Active& one) {
    for (const RunEvent& event : one.child.events()) receive_ring(one, event);
  }

  void receive_ring(Active& one, const RunEvent& event) {
    const Line& line = plan_.lines[one.line];
    if (event.kind == RunEvent::Kind::granted) look_again_ = {};
    if (event.kind != RunEvent::Kind::notice) one.placed = true;
    switch (event.kind) {
      case RunEvent::Kind::waiting:
        if (one.granted) account(one);  // it ran out of memory, and asks for more
        one.granted = false;
        one.limit.reset();
        one.reason = event.text;
        break;
      case RunEvent::Kind::notice:
        view_.notice(line, event.text);
        break;
      case RunEvent::Kind::granted:
        if (one.granted) account(one);
        one.granted = true;
        one.since = Clock::now();
        one.end.begin = std::chrono::system_clock::now();
        one.end.lease = event.lease;
        one.end.gpus = event.gpus;
        if (one.stopped || one.end.timed_out) one.child.stop();  // what was sent came too early
        if (one.end.timed_out) {
          one.limit = one.since + kGrace;
        } else if (plan_.timeout && !one.stopped) {
          one.limit = one.since + *plan_.timeout;
        }
        view_.started(line, event.gpus, one.end.attempts);
        break;
      case RunEvent::Kind::ended:
        one.end.out_of_memory = event.out_of_memory;
        break;
    }
  }

  // What it has used of the GPUs since it was granted them.
  void account(const Active& one) {
    const auto gpus = std::count(one.end.gpus.begin(), one.end.gpus.end(), ',') + 1;
    result_.gpu_time += (Clock::now() - one.since) * gpus;
  }

  void keep_to_limit(Active& one) {
    if (!one.limit || Clock::now() < *one.limit) return;
    if (std::exchange(one.end.timed_out, true)) {
      one.limit.reset();
      return one.child.kill();
    }
    one.limit = Clock::now() + kGrace;
    const UniqueFd log =
        plan_.logs->reopen_log(log_name(plan_.lines[one.line], plan_.lines.size()));
    remark(log, fmt::format("stopped after {} (--timeout)", format_duration(*plan_.timeout)));
    one.child.stop();
  }

  void finish(Active& one, int code) {
    const Line& line = plan_.lines[one.line];
    one.end.code = code;
    one.end.end = std::chrono::system_clock::now();
    if (one.granted) {
      account(one);
    } else if (one.end.begin == TimePoint{}) {
      one.end.begin = one.end.end;
    }
    order_.ended(one.line);
    known_seconds_.erase(plan_.types[one.line]);
    look_again_ = {};
    // Whatever its code: nobody can tell whether it did all that it was to do.
    if (one.stopped) return forget(one);
    const auto own = one.end.lease.empty() ? own_failure(code) : std::nullopt;
    if (own) {
      give_up({*own, reported(one)});
      return forget(one);
    }
    if (one.granted) run_times_.ended(plan_.types[one.line], Clock::now() - one.since);
    const bool again = !one.end.succeeded() && !closed_ && one.end.attempts <= plan_.retries;
    view_.ended(line, one.end, again);
    if (again) {
      ++to_start_[plan_.types[one.line]];
      return order_.again(one.line);
    }
    joblog_.ended(line, one.end);
    if (const auto problem = joblog_.problem(); problem && !std::exchange(warned_, true)) {
      view_.notice(*problem);
    }
    if (one.end.succeeded()) {
      ++result_.succeeded;
      return;
    }
    result_.failed.push_back({&line, one.end, one.log_begin});
    if (!plan_.keep_going && !closed_) {
      view_.notice("a line failed: nothing more is started (--keep-going goes on)");
      close();
    }
  }

  // It was kept from running, or from ending: as if it had not been started.
  void forget(const Active& one) const {
    plan_.logs->remove_if_empty(log_name(plan_.lines[one.line], plan_.lines.size()));
  }

  // The complaint of `berth run`, which went into the log.
  static std::string reported(const Active& one) {
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
    for (const Active& one : active_) {
      if (one.granted) {
        now.running.push_back(
            {one.end.gpus, Clock::now() - one.since, plan_.lines[one.line].command});
      } else if (now.reason.empty()) {
        now.reason = one.reason;
      }
    }
    std::stable_sort(now.running.begin(), now.running.end(),
                     [](const RunningJob& a, const RunningJob& b) { return a.lasted > b.lasted; });
    if (view_.live()) now.left = time_left();
    return now;
  }

  // As if as many as run now went on to run at once.
  std::optional<std::chrono::nanoseconds> time_left() {
    double sum = 0;
    double longest = 0;
    std::size_t running = 0;
    for (const auto& [type, count] : to_start_) {
      const auto each = count == 0 ? 0 : seconds_of(type);
      if (!each) return std::nullopt;
      sum += *each * static_cast<double>(count);
    }
    for (const Active& one : active_) {
      const std::string& type = plan_.types[one.line];
      const auto whole = seconds_of(type);
      if (!whole) return std::nullopt;
      const std::chrono::duration<double> lasted = Clock::now() - one.since;
      const double left = one.granted ? std::max(0.0, *whole - lasted.count()) : *whole;
      sum += left;
      longest = std::max(longest, left);
      if (one.granted) ++running;
    }
    if (running == 0) return std::nullopt;
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(std::max(longest, sum / static_cast<double>(running))));
  }

  // What was learned is read from a file: only where it is needed, and once until one of that type
  // has ended.
  std::optional<double> seconds_of(const std::string& type) {
    if (run_times_.knows(type) || !plan_.known_seconds) return run_times_.seconds(type, {});
    const auto [known, is_new] = known_seconds_.try_emplace(type);
    if (is_new) known->second = plan_.known_seconds(type);
    return run_times_.seconds(type, known->second);
  }

  const BatchPlan& plan_;
  LineOrder order_;
  Joblog& joblog_;
  BatchView& view_;
  SignalQueue& signals_;
  Inherited inherited_;
  std::list<Active> active_;  // in the order of their start
  std::vector<unsigned> attempts_;
  std::map<std::string, std::size_t> to_start_;  // lines of each type
  std::size_t succeeded_before_ = 0;
  BatchResult result_;
  RunTimes run_times_;
  std::map<std::string, std::optional<double>> known_seconds_;  // of each type, as it was read
  Clock::time_point begin_ = Clock::now();
  Clock::time_point look_again_{};  // at what fits
  Clock::time_point stopped_at_{};  // when the first signal came
  bool closed_ = false;             // nothing more is started
  bool warned_ = false;
};

}  // namespace

BatchResult run_batch(const BatchPlan& plan, LineOrder order, Joblog& joblog, BatchView& view,
                      SignalQueue& signals) {
  return Runner(plan, std::move(order), joblog, view, signals).run();
}

}  // namespace berth::batch
