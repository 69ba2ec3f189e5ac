// The command `berth batch [REQUEST] FILE`.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <string>
#include <unistd.h>
#include <vector>

#include "base/environment.h"
#include "base/shell.h"
#include "base/terminal.h"
#include "base/text.h"
#include "base/time_text.h"
#include "batch/command_source.h"
#include "batch/gpu_share.h"
#include "batch/joblog.h"
#include "batch/line_order.h"
#include "batch/lines.h"
#include "batch/progress_display.h"
#include "batch/runner.h"
#include "batch/startable_lines.h"
#include "batch/summary.h"
#include "cli/batch_flags.h"
#include "cli/command.h"
#include "lease/sublease.h"
#include "profile/job_type.h"
#include "profile/needs_estimate.h"
#include "run/detach.h"
#include "run/notify.h"
#include "run/start_conditions.h"

namespace berth {
namespace {

using namespace batch;

// The number of lines of a batch that wait in the queue at once. With a single line, a GPU would be
// idle while the next line starts and makes its request. If the lines need different amounts of
// memory, several waiting lines let the scheduler find one that fits; even more had no benefit
// (docs/batch.md has the measurements).
constexpr std::size_t kQueueWindow = 2;
constexpr std::size_t kLearnedQueueWindow = 8;

// What the batch uses in the file system.
struct BatchPaths {
  std::string logs;
  std::string joblog;
  bool follow_commands = false;  // they are named by the commands, so other commands have others
};

BatchPaths batch_paths(const BatchCommandOptions& options, const std::vector<BatchLine>& lines) {
  const std::string file = options.source.named_file();
  BatchPaths paths;
  paths.logs = !options.logs.empty() ? options.logs
               : !file.empty()       ? default_log_folder(file)
                                     : default_log_folder(lines);
  paths.joblog =
      options.joblog.empty() ? fmt::format("{}/joblog.jsonl", paths.logs) : options.joblog;
  paths.follow_commands = file.empty() && options.logs.empty() && options.joblog.empty();
  return paths;
}

Result<void> check_options(const BatchCommandOptions& options) {
  if (options.no_wait) {
    return usage_failure("--no-wait is not allowed, since a batch waits for GPUs; omit it");
  }
  if (options.per_gpu > 0 && (options.request->request.memory || options.request->auto_memory)) {
    return usage_failure(
        "--per-gpu and --mem contradict each other: --per-gpu K reserves a K-th of "
        "the memory; use only one of them");
  }
  if (options.resume && options.restart) {
    return usage_failure("--resume and --restart contradict each other; use only one of them");
  }
  if (options.notify_lines && options.notify.choices.empty())
    return usage_failure("--notify-lines needs --notify; write, for example, --notify mail");
  if (const auto* const choice = find_choice_without_batch_events(options.notify);
      choice != nullptr && !options.notify_lines) {
    return usage_failure(
        fmt::format("--notify {} names events of single jobs only; add --notify-lines",
                    in_quotes(choice->text)));
  }
  if (options.limit && options.old_limit) {
    return usage_failure("--limit and --timeout mean the same here; use only --limit");
  }
  if (options.replaces_braces && options.source.is_sweep()) {
    return usage_failure(
        "-I {} contradicts the {} of the values; choose another text, such as -I @");
  }
  return {};
}

// Inside a lease, requests do not wait, so the batch itself must limit its jobs to the lease's
// GPUs. nullopt outside of a lease.
std::optional<std::size_t> current_lease_gpu_count() {
  if (!runs_inside_lease()) return std::nullopt;
  const std::string_view gpus = get_env_or_empty("BERTH_GPUS");
  return static_cast<std::size_t>(std::count(gpus.begin(), gpus.end(), ',')) + 1;
}

// Sets how many lines run at once, and the flags of their requests.
Result<void> plan_sharing(const BatchCommandOptions& options, BatchPlan& plan) {
  plan.run_flags = options.request->flags;
  plan.run_flags.insert(plan.run_flags.end(), options.run_flags.begin(), options.run_flags.end());
  if (options.notify_lines) {
    for (const std::string& text : options.notify.texts)
      plan.run_flags.push_back(fmt::format("--notify={}", text));
  }
  plan.window = options.request->auto_memory ? kLearnedQueueWindow : kQueueWindow;
  if (options.jobs) plan.jobs = *options.jobs;
  if (const auto gpus = current_lease_gpu_count()) {
    const std::size_t count = std::max(1U, options.request->request.count);
    const std::size_t fit = std::max<std::size_t>(1, *gpus / count) * std::max(1U, options.per_gpu);
    if (!options.jobs) plan.jobs = fit;
    return {};
  }
  if (options.per_gpu < 2) return {};
  const Bytes smallest = TRY(smallest_gpu_memory(make_acquire_request(*options.request)));
  plan.run_flags.push_back(
      fmt::format("--mem={}MiB", memory_per_job(smallest, options.per_gpu).count >> 20));
  return {};
}

// The profiles of job types. Reads a profile at each call, since runs of this batch change it.
struct ProfileLookup {
  HarbourLocation harbour = harbour_location();

  std::optional<double> expected_seconds(const std::string& type) const {
    const auto profile = read_profile(harbour, type);
    return profile ? mean_seconds(*profile) : std::nullopt;
  }

  // Memory times run time; nullopt if the type must be measured first.
  std::optional<double> expected_work(const std::string& type) const {
    const auto profile = read_profile(harbour, type);
    const auto memory = profile ? estimate_needs(*profile).memory : std::nullopt;
    if (!memory) return std::nullopt;
    return static_cast<double>(memory->count) * mean_seconds(*profile).value_or(0);
  }

 private:
  static std::optional<double> mean_seconds(const Profile& profile) {
    if (profile.set_time) return std::chrono::duration<double>(*profile.set_time).count();
    std::chrono::milliseconds sum{};
    for (const ProfileRun& run : profile.runs) sum += run.lasted;
    if (profile.runs.empty()) return std::nullopt;
    return std::chrono::duration<double>(sum).count() / static_cast<double>(profile.runs.size());
  }
};

std::vector<std::string> derive_types(const BatchCommandOptions& options,
                                      const std::vector<BatchLine>& lines) {
  const unsigned count = options.request->request.count;
  const bool hidden = are_commands_hidden();
  std::vector<std::string> types;
  types.reserve(lines.size());
  for (const BatchLine& line : lines) {
    types.push_back(options.request->job.empty()
                        ? derive_line_job_type(line.command, count, hidden).name
                        : make_named_job_type(options.request->job, count).name);
  }
  return types;
}

LineOrder make_line_order(const BatchCommandOptions& options, const BatchPlan& plan) {
  if (!options.request->auto_memory || options.in_order) return LineOrder(plan.to_run);
  std::vector<std::string> types;
  types.reserve(plan.to_run.size());
  for (const std::size_t line : plan.to_run) types.push_back(plan.types[line]);
  return {plan.to_run, types, [profiles = ProfileLookup()](const std::string& type) {
            return profiles.expected_work(type);
          }};
}

// The indices of the lines to run. With --resume, these are the lines that have not succeeded in
// the batch before this one, whose joblog has the content `previous`.
std::vector<std::size_t> select_lines(const BatchCommandOptions& options,
                                      const JoblogContent& previous,
                                      const std::vector<BatchLine>& lines) {
  std::vector<std::size_t> selected;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto entry = previous.lines.find(lines[i].key);
    const bool has_succeeded = entry != previous.lines.end() && entry->second;
    if (!options.resume || !has_succeeded) selected.push_back(i);
  }
  return selected;
}

// Refuses to repeat the finished lines of an unfinished batch, unless the user has asked for it.
Result<void> refuse_repetition(const BatchCommandOptions& options, const JoblogContent& previous,
                               const std::string& joblog, const std::vector<BatchLine>& lines) {
  const bool is_asked_for = options.resume || options.restart;
  // If no line has succeeded, starting over loses nothing.
  if (is_asked_for || previous.succeeded() == 0 || previous.finished) return {};
  const bool is_known = std::any_of(lines.begin(), lines.end(), [&](const BatchLine& line) {
    return previous.lines.contains(line.key);
  });
  return usage_failure(
      fmt::format("{} has an unfinished batch{} ({} of {} succeeded); {}", in_quotes(joblog),
                  is_known ? "" : " of other commands", previous.succeeded(), previous.total,
                  is_known ? "continue it with --resume, or start over with --restart"
                           : "choose another --logs, or replace it with --restart"));
}

// The notice of --dry-run is on stderr, so that stdout has the lines alone.
Result<int> show_lines(const BatchCommandOptions& options, const BatchPaths& paths,
                       BatchPlan& plan) {
  const JoblogContent previous = TRY(read_joblog(paths.joblog));
  TRY(refuse_repetition(options, previous, paths.joblog, plan.lines));
  plan.to_run = select_lines(options, previous, plan.lines);
  const Terminal terminal = terminal_at(STDOUT_FILENO);
  for (const std::size_t i : plan.to_run) {
    const BatchLine& line = plan.lines[i];
    print(terminal.escape(
              fmt::format("{} {}", format_position(line.number, plan.lines.size()), line.command)) +
          '\n');
  }
  print_message(fmt::format("batch: dry run: {} of {} lines would run, with their logs in {}",
                            plan.to_run.size(), plan.lines.size(), paths.logs));
  return 0;
}

std::string default_label(const BatchCommandOptions& options) {
  constexpr std::size_t kMaxLabel = 100;
  if (!options.request->label.empty()) return "";
  const std::string file = options.source.named_file();
  if (file.empty()) return "batch";
  return truncate_text(printable(file.substr(file.rfind('/') + 1)), kMaxLabel);
}

int batch_exit_code(const BatchResult& result) {
  if (result.signal != 0) return 128 + result.signal;
  return result.failed.empty() ? 0 : 1;
}

void report_batch(JobRecorder& recorder, const Progress& progress) {
  recorder.write_progress(
      {progress.total, progress.succeeded, progress.failed, progress.running.size()});
}

// A batch that could not run any line was refused: the caller has the error.
void notify_end(Notifier& notifier, const BatchPlan& plan, const BatchResult& result) {
  const bool is_refused = result.error && result.succeeded == 0 && result.failed.empty();
  if (is_refused) return;
  Notifier::JobResult end;
  end.exit_code = result.error ? exit_code(result.error->kind) : batch_exit_code(result);
  end.interrupted = result.signal != 0;
  end.run_time = result.elapsed;
  const std::size_t before = plan.lines.size() - plan.to_run.size();
  end.counts = NotifyCounts{plan.lines.size(), before + result.succeeded, result.failed.size(),
                            result.interrupted, result.not_started};
  notifier.send_end(end);
}

Result<int> run_lines(const BatchCommandOptions& options, const BatchPaths& paths, BatchPlan plan,
                      JobRecorder& recorder, Notifier& notifier) {
  if (const auto signal = TRY(wait_for_start(options.start, recorder))) return 128 + *signal;
  if (options.old_limit) {
    print_message(
        "batch: --timeout is now called --limit (how long a line may run); the old name works in "
        "this version only");
  }
  TRY(plan_sharing(options, plan));
  plan.types = derive_types(options, plan.lines);
  plan.label = default_label(options);
  plan.replace_logs = !options.resume;
  plan.retries = options.retries;
  plan.limit = options.limit ? options.limit : options.old_limit;
  plan.keep_going = options.keep_going;
  plan.on_granted = [&](const std::string& lease, const std::string& gpus) {
    recorder.write_line_granted(lease, gpus);
    notifier.send_granted("", "");  // the first line; each event is sent once
  };
  plan.on_progress = [&recorder](const Progress& now) { report_batch(recorder, now); };
  plan.known_seconds = [profiles = ProfileLookup()](const std::string& type) {
    return profiles.expected_seconds(type);
  };
  plan.logs = std::make_shared<const LogFolder>(TRY(LogFolder::open(paths.logs)));
  plan.resume_flags = paths.follow_commands
                          ? fmt::format("--resume --logs {}", shell_quote(paths.logs))
                          : "--resume";
  Joblog joblog = TRY(Joblog::open(paths.joblog, *plan.logs));
  TRY(refuse_repetition(options, joblog.content(), paths.joblog, plan.lines));
  plan.to_run = select_lines(options, joblog.content(), plan.lines);
  if (!options.resume) joblog.clear();
  recorder.report_ready();
  // Queued until the summary is printed: a user who presses Ctrl-C once too often wants to read it.
  SignalQueue signals(kBatchSignals);
  // The signals that also end the wait for a driver.
  const SignalQueue end_signals({SIGINT, SIGTERM, SIGHUP});
  const BatchResult result = [&] {
    ProgressDisplay view(plan.lines.size());
    if (options.request->auto_memory && !options.in_order && !current_lease_gpu_count()) {
      const SlowDriver slow{[&view] { view.show_notice("waiting for the driver to answer"); },
                            end_signals.fd()};
      const auto fits = std::make_shared<StartableLines>(make_acquire_request(*options.request),
                                                         plan.types, slow);
      plan.find_startable = [fits](const std::vector<std::size_t>& some) {
        return fits->find_startable(some);
      };
    }
    return run_batch(plan, make_line_order(options, plan), joblog, view, signals);
  }();
  const bool refused = result.error && result.succeeded == 0 && result.failed.empty();
  if (!refused) print(format_summary(plan, result, terminal_at(STDOUT_FILENO)));
  std::fflush(stdout);
  notify_end(notifier, plan, result);
  if (result.error) return tl::make_unexpected(*result.error);
  return batch_exit_code(result);
}

// What 'berth jobs' shows as the command.
std::vector<std::string> describe_source(const CommandSource& source) {
  std::vector<std::string> words{"batch"};
  words.insert(words.end(), source.arguments.begin(), source.arguments.end());
  if (!source.csv.empty()) words.insert(words.end(), {"--csv", source.csv});
  if (!source.words.empty()) words.emplace_back("--");
  words.insert(words.end(), source.words.begin(), source.words.end());
  return words;
}

Result<int> run_and_notify(const BatchCommandOptions& options, const BatchPaths& paths,
                           BatchPlan plan, JobRecorder& recorder, Notifier& notifier) {
  if (recorder.is_active()) notifier.set_detached_job(recorder.id(), recorder.path());
  auto result = run_lines(options, paths, std::move(plan), recorder, notifier);
  // The user sees wrong usage at once.
  if (!result && result.error().kind != ErrorKind::usage) notifier.send_refused(result.error());
  return result;
}

Result<int> run(const BatchCommandOptions& options) {
  TRY(check_options(options));
  TRY(check_start_conditions(options.start));
  BatchPlan plan;
  plan.lines = TRY(read_commands(options.source));
  if (plan.lines.empty()) {
    const std::string& csv = options.source.csv;
    print_message(fmt::format("batch: there are no {}: nothing to do",
                              csv.empty() ? "commands" : "rows in " + source_name(csv)));
    return 0;
  }
  const BatchPaths paths = batch_paths(options, plan.lines);
  if (options.resume && paths.follow_commands && ::access(paths.joblog.c_str(), F_OK) != 0) {
    return usage_failure(
        "there is no earlier batch of these commands here; if you have changed "
        "some, name its folder with --logs");
  }
  if (options.dry_run) return show_lines(options, paths, plan);
  const std::string label =
      options.request->label.empty() ? default_label(options) : options.request->label;
  const std::vector<std::string> source = describe_source(options.source);
  Notifier notifier = TRY(Notifier::create(
      options.notify, {true, label, public_command(source, are_commands_hidden())}, true));
  JobRecorder no_recorder;
  if (!options.detach)
    return run_and_notify(options, paths, std::move(plan), no_recorder, notifier);
  JobSpec spec = make_job_spec(JobKind::batch, source, label);
  std::error_code problem;
  spec.line_logs = std::filesystem::absolute(paths.logs, problem).lexically_normal().string();
  return run_detached(std::move(spec), [&](JobRecorder& recorder) {
    return run_and_notify(options, paths, std::move(plan), recorder, notifier);
  });
}

}  // namespace

Action define_batch(Flags& command, const CommandContext& context) {
  const auto options = add_batch_flags(command);
  return [options, &context]() {
    options->source.words = context.trailing_command;
    return run(*options);
  };
}

}  // namespace berth
