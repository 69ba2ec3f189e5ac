// The command `berth wait ID… [--any] [--timeout DURATION]`.
#include <chrono>
#include <csignal>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/quantity.h"
#include "base/signals.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/command.h"
#include "run/job_wait.h"

namespace berth {
namespace {

struct WaitCommandOptions {
  std::vector<std::string> ids;
  bool any = false;
  bool json = false;
  std::optional<std::chrono::nanoseconds> timeout;
};

// Why there is no exit code, or which error of berth the exit code is.
void report_outcome(const std::string& id, const JobOutcome& outcome) {
  if (!outcome.code) {
    print_message(fmt::format("the exit code of job {} is unknown: {}", id, outcome.why));
  } else if (!outcome.why.empty()) {
    print_message(fmt::format("job {}: {}", id, outcome.why));
  }
}

Json outcome_json(const std::string& id, const JobOutcome& outcome) {
  const char* const result = !outcome.code         ? "unknown"
                             : outcome.succeeded() ? "succeeded"
                                                   : "failed";
  return {{"id", id},
          {"result", result},
          {"exit_code", or_null(outcome.code)},
          {"reason", outcome.why.empty() ? Json(nullptr) : Json(outcome.why)}};
}

std::string describe_jobs(std::span<const JobWatch> jobs) {
  return fmt::format("{} {}", jobs.size() == 1 ? "job" : "jobs",
                     join_text(jobs, ", ", &JobWatch::id));
}

// The exit code if the wait ended before the jobs: a signal, or the time limit.
Result<int> give_up(SignalQueue& signals, const WaitCommandOptions& options,
                    std::span<const JobWatch> left) {
  if (const auto signal = signals.next()) {
    print_message(fmt::format("the wait was interrupted; {} {} on", describe_jobs(left),
                              left.size() == 1 ? "goes" : "go"));
    return 128 + static_cast<int>(signal->ssi_signo);
  }
  return fail(ErrorKind::not_granted,
              fmt::format("wait: job {} has not ended within {}", left.front().id(),
                          format_duration(*options.timeout)));
}

Result<int> wait(const WaitCommandOptions& options) {
  if (options.ids.empty()) {
    return fail(ErrorKind::usage,
                "wait: no job given; name one ('berth jobs' lists them), such as: berth wait "
                "k3f9a2mx");
  }
  SignalQueue signals({SIGINT, SIGTERM, SIGHUP, SIGQUIT});
  Deadline deadline;
  if (options.timeout) {
    deadline = std::chrono::steady_clock::now() +
               std::chrono::ceil<std::chrono::steady_clock::duration>(*options.timeout);
  }
  // All at once, and before the first wait: a wrong id is an error at once.
  std::vector<JobWatch> jobs;
  for (const std::string& id : options.ids) jobs.push_back(TRY(JobWatch::open(id)));
  std::vector<JobOutcome> outcomes;
  Json list = Json::array();
  const std::size_t wanted = options.any ? 1 : jobs.size();
  while (outcomes.size() < wanted) {
    const std::span<JobWatch> left = std::span(jobs).subspan(outcomes.size());
    const std::span<JobWatch> watched = options.any ? left : left.first(1);
    const auto ended = TRY(wait_for_any_job(watched, deadline, signals.fd()));
    if (!ended) return give_up(signals, options, left);
    const std::string& id = watched[ended->index].id();
    if (!options.json) report_outcome(id, ended->outcome);
    list.push_back(outcome_json(id, ended->outcome));
    outcomes.push_back(ended->outcome);
  }
  if (options.json) print(to_ascii_json({{"jobs", std::move(list)}}, 2) + "\n");
  return exit_code(outcomes);
}

}  // namespace

Action define_wait(Flags& command, const CommandContext& /*context*/) {
  auto options = std::make_shared<WaitCommandOptions>();
  command.add_positionals("ID", "Ids of jobs, as 'berth jobs' shows them", options->ids);
  command.add_flag("--any", options->any, "Wait for the first of the jobs that ends");
  command.add_flag("--json", options->json, "Print JSON (see docs/json.md)");
  command.add_value("--timeout", "DURATION", "Wait at most this long, such as 10m",
                    [options](std::string_view text) -> Result<void> {
                      options->timeout = TRY(parse_duration(text));
                      return {};
                    });
  command.set_footer(
      "Returns when the jobs have ended, also if that was long ago. A job whose berth process was\n"
      "killed has ended when none of its processes holds the lease; its exit code is unknown.\n"
      "\nExamples:\n"
      "  ID=$(berth run -d -- python train.py)\n"
      "  berth wait $ID && python evaluate.py\n"
      "  berth wait --timeout 1h k3f9a2mx t4kagzgu\n"
      "\nExit codes: that of the job; of several, 0 if all succeeded, else that of the first (in "
      "the\n"
      "order given) that did not; with --any that of the first that ends. 64 there is no such "
      "job;\n"
      "70 the job's exit code is unknown; 75 the time is over; 77 the job is another user's; "
      "128+N\n"
      "ended by signal N.");
  return [options]() { return wait(*options); };
}

}  // namespace berth
