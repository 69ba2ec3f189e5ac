// The command `berth cancel ID… | --label TEXT | --all | --mine`.
#include "run/cancel.h"

#include <chrono>
#include <fmt/format.h>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/quantity.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/command.h"
#include "cluster/remote/cancel_remote.h"

namespace berth {
namespace {

struct CancelCommandOptions {
  CancelSelection selection;
  std::chrono::nanoseconds grace = kDefaultGrace;
  bool json = false;
};

const char* result_name(const CancelledJob& job) {
  if (job.kind == CancelKind::ticket) return "cancelled";
  if (job.kind == CancelKind::shell_lease) return "released";
  switch (job.end) {
    case JobEndResult::ended:
      return job.was_waiting ? "cancelled" : "ended";
    case JobEndResult::killed:
      return "killed";
    case JobEndResult::refused:
      return "refused";
    case JobEndResult::invisible:
      return "invisible";
    case JobEndResult::alive:
      break;
  }
  return "alive";
}

void print_json(const std::vector<CancelledJob>& jobs, std::chrono::nanoseconds grace) {
  Json list = Json::array();
  for (const CancelledJob& job : jobs) {
    list.push_back(
        {{"id", job.id}, {"result", result_name(job)}, {"text", describe_end(job, grace)}});
  }
  print(to_ascii_json({{"jobs", std::move(list)}}, 2) + "\n");
}

// Why a selection is empty.
std::string describe_nothing(const CancelSelection& selection) {
  const std::string_view what =
      selection.only_waiting ? "ticket in the queue" : "job, ticket or lease";
  if (!selection.label.empty())
    return fmt::format("you have no {} with the label {}", what, in_quotes(selection.label));
  return fmt::format("there is nothing to cancel: you have no {}", what);
}

Result<int> run(const CancelCommandOptions& options) {
  CancelSelection selection = options.selection;
  const bool by_selection = selection.all || selection.mine || !selection.label.empty();
  if (by_selection != selection.ids.empty()) {
    return fail(ErrorKind::usage, by_selection
                                      ? "cancel: name jobs, or use --all, --mine or --label, not "
                                        "both"
                                      : "cancel: no job given; name one ('berth jobs' lists yours) "
                                        "or use --all");
  }
  RemoteCancel remote = TRY(find_remote_targets(selection));
  if (options.json && !remote.is_empty()) {
    return fail(ErrorKind::usage,
                "cancel: one of these jobs is on another host, whose answer is text; omit --json");
  }
  std::vector<CancelledJob> jobs;
  const OnSlowEnd report_slow = [&](const std::vector<std::string>& ids) {
    print_message(
        fmt::format("{} {} not ended yet; SIGKILL follows {} after SIGTERM",
                    ids.size() == 1 ? "job " + ids.front() : fmt::format("{} jobs", ids.size()),
                    ids.size() == 1 ? "has" : "have", format_duration(options.grace)));
  };
  // If one of the ids of this host is refused, nothing is ended on other hosts.
  if (by_selection) TRY(cancel_remote_tickets(remote));
  if (by_selection || !selection.ids.empty())
    jobs = TRY(cancel(selection, options.grace, report_slow));
  int code = 0;
  for (CancelledJob& job : jobs) {
    if (const auto name = remote.names.find(job.id); name != remote.names.end())
      job.id = name->second;
    if (is_done(job)) {
      if (!options.json) print(describe_end(job, options.grace) + "\n");
      continue;
    }
    print_message(describe_end(job, options.grace));
    code = exit_code(job.end == JobEndResult::refused ? ErrorKind::permission : ErrorKind::io);
  }
  if (options.json) {
    print_json(jobs, options.grace);
  } else if (jobs.empty() && remote.is_empty()) {
    print_message(describe_nothing(selection));
  }
  if (!by_selection) TRY(cancel_remote_tickets(remote));
  const int remote_code = cancel_remote_jobs(remote, options.grace);
  return code != 0 ? code : remote_code;
}

}  // namespace

Action define_cancel(Flags& command, const CommandContext& /*context*/) {
  auto options = std::make_shared<CancelCommandOptions>();
  CancelSelection& selection = options->selection;
  command.add_positionals("ID", "Ids of jobs, tickets or leases, as 'berth jobs' shows them",
                          selection.ids);
  command.add_text("--label", "TEXT", "Your jobs with this label", selection.label);
  command.add_flag("--mine", selection.mine, "All of your jobs");
  command.add_flag("-a,--all", selection.all, "The same; for root: the jobs of all users");
  command.add_flag("--waiting", selection.only_waiting, "Only those that still wait for GPUs");
  command.add_flag("--json", options->json, "Print JSON (see docs/json.md)");
  command.add_value("--grace", "DURATION", "Time between SIGTERM and SIGKILL (default: 10s)",
                    [options](std::string_view text) -> Result<void> {
                      options->grace = TRY(parse_duration(text));
                      return {};
                    });
  command.set_footer(
      "A waiting ticket leaves the queue; its 'berth run' or 'berth acquire' exits with code 75.\n"
      "A running job or batch gets SIGTERM and, if it has not ended within the grace time,\n"
      "SIGKILL. The lease of a shell is released. You can end only what is yours; root can end\n"
      "everything. If one of several ids is refused, nothing is ended. Your jobs on other hosts\n"
      "of the harbour are ended there, by ssh (docs/jobs.md).\n"
      "\nExamples:\n"
      "  berth cancel k3f9a2mx\n"
      "  berth cancel --label sweep\n"
      "  berth cancel --all --waiting\n"
      "\nExit codes: 0 done; 64 there is no such job; 74 the harbour cannot be used, or a process\n"
      "does not end; 77 the job belongs to another user.");
  return [options]() { return run(*options); };
}

}  // namespace berth
