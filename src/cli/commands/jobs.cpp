// The command `berth jobs [ID…] [-a] [--since WHEN] [--json]`.
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include "base/terminal.h"
#include "cli/command.h"
#include "cli/output/jobs_text.h"
#include "lease/history_filter.h"
#include "run/job_json.h"
#include "run/job_sources.h"

namespace berth {
namespace {

struct JobsCommandOptions {
  JobListOptions list;
  bool json = false;
};

Result<int> show_jobs(const JobsCommandOptions& options) {
  remove_expired_jobs();
  const std::vector<JobInfo> jobs = TRY(list_all_jobs(options.list));
  if (options.json) {
    print(jobs_json(jobs));
  } else if (jobs.empty()) {
    print_message(
        options.list.since
            ? "no jobs since then; to look further back, use an earlier --since"
            : "no jobs now, and none that ended in the last day; to start one that goes on "
              "without this terminal: berth run -d -- python train.py");
  } else {
    print(jobs_text(jobs, terminal_at(STDOUT_FILENO),
                    {std::chrono::system_clock::now(), options.list.all_users,
                     local_host_name(harbour_location())}));
  }
  return 0;
}

}  // namespace

Action define_jobs(Flags& command, const CommandContext& /*context*/) {
  auto options = std::make_shared<JobsCommandOptions>();
  command.add_positionals("ID", "Only these jobs, whenever they ended", options->list.ids);
  command.add_flag("-a,--all", options->list.all_users, "The jobs of all users");
  command.add_value("--since", "WHEN",
                    "Only jobs that have not ended, or that ended since: 2h, 7d, 2026-11-16",
                    [options](std::string_view text) -> Result<void> {
                      HistoryFilter filter;
                      TRY(set_since(filter, text));
                      options->list.since = filter.since;
                      return {};
                    });
  command.add_flag("--json", options->json, "Print JSON (see docs/json.md)");
  command.set_footer(
      "Shows your jobs in the order in which they were submitted: those of 'berth run', 'berth\n"
      "batch -d', 'berth acquire' and 'berth adopt'. A detached job (run -d) is listed until it "
      "is\n"
      "removed, 14 days after its end; another one until a day after its end.\n"
      "\n"
      "States: held: waits for another job or a time; waiting: has a ticket in the queue; "
      "running;\n"
      "ended; failed: ended with an exit code other than 0. SINCE and FOR are those of the\n"
      "state; of an ended job, FOR is how long it ran. UNTIL is the expected start or end ('~': "
      "an\n"
      "estimate). EXIT 'unknown': the job's berth process was killed, or the host was restarted.\n"
      "With several hosts (BERTH_URL), your jobs on all of them are listed.\n"
      "\nExamples:\n"
      "  berth jobs\n"
      "  berth jobs --all\n"
      "  berth jobs --since 7d --json | jq -r '.jobs[] | select(.result == \"failed\") | .id'\n"
      "\nExit codes: 0 done; 64 there is no such job; 74 the harbour cannot be used.");
  return [options]() { return show_jobs(*options); };
}

}  // namespace berth
