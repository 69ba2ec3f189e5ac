// The command `berth log [--since WHEN] [--user NAME] [--host NAME] [--gpu GPU,…] [--follow]
// [--json]`.
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fmt/format.h>
#include <memory>
#include <poll.h>
#include <set>
#include <string>
#include <unistd.h>
#include <utility>

#include "archive/follow_history.h"
#include "archive/history_json.h"
#include "base/text.h"
#include "base/time_text.h"
#include "base/users.h"
#include "cli/command.h"
#include "cli/history_flags.h"
#include "cli/output/log_text.h"
#include "devices/driver.h"
#include "lease/lease_history.h"

namespace berth {
namespace {

constexpr std::chrono::hours kDefaultLogPeriod(24 * 7);

struct LogCommandOptions {
  HistoryFilter history = make_recent_filter(kDefaultLogPeriod);
  bool follow = false;
  bool json = false;
};

using LeaseKeys = std::set<LeaseKey>;

// Prints leases as they end, until the process is interrupted or the reader of its output is gone.
void follow_log(HistoryFollower& follower, LeaseKeys printed, const HistoryFilter& options,
                const std::function<std::string(const HistoryEntry&)>& render) {
  constexpr int kPollMs = 5'000;  // for when poll_fd() cannot report new entries
  while (std::fflush(stdout) == 0) {
    std::array<pollfd, 2> watched{{{follower.poll_fd(), POLLIN, 0}, {STDOUT_FILENO, 0, 0}}};
    ::poll(watched.data(), watched.size(), kPollMs);
    // The reader of the pipe, socket or terminal is gone.
    if ((watched[1].revents & (POLLERR | POLLHUP)) != 0) return;
    for (const HistoryEntry& entry : follower.read_new_entries()) {
      const bool ended = entry.ending != Ending::running;
      if (ended && matches_history_filter(entry, options) &&
          printed.insert(lease_key(entry)).second)
        print(render(entry));
    }
  }
}

// Whether the driver knows none of the GPUs that the filter names. False if that is unknown.
bool names_only_missing_gpus(const HistoryFilter& filter, const HarbourLocation& where) {
  if (filter.gpus.empty() || where.url) return false;
  const auto probe = open_driver(print_driver_is_slow);
  if (!probe) return false;
  const auto snapshot = (*probe)->snapshot();
  return snapshot &&
         std::none_of(snapshot->gpus.begin(), snapshot->gpus.end(), [&](const Gpu& gpu) {
           return is_gpu_in_list(filter.gpus, gpu.uuid.value_or(""), to_string(gpu.index));
         });
}

std::string explain_empty_log(const HistoryFilter& filter, const HarbourLocation& where) {
  const LeaseFilter& leases = filter.lease_filter;
  std::string text = "no leases";
  if (leases.uid || !leases.user.empty())
    text += fmt::format(" of {}", leases.uid ? user_name(*leases.uid) : leases.user);
  if (!filter.gpus.empty()) text += fmt::format(" on {}", gpu_list(filter.gpus));
  text += fmt::format(" since {}", format_local_time(filter.since, "%Y-%m-%d %H:%M"));
  return text + (names_only_missing_gpus(filter, where)
                     ? "; this host has no such GPU"
                     : "; to look further back, use --since, such as --since 30d");
}

Result<int> show_log(const LogCommandOptions& options) {
  const HarbourLocation where = harbour_location();
  const HistoryFilter filter = resolve_host_filter(options.history, where);
  std::unique_ptr<HistoryFollower> follower;
  // Opened before the history is read, so that no entry is missed.
  if (options.follow) follower = TRY(follow_history(where));
  const auto matches = [&](const HistoryEntry& entry) {
    return matches_history_filter(entry, filter);
  };
  const auto history = TRY(read_merged_history(where, filter.since, matches));
  warn_about_omitted_history(history.damaged, history.truncated, where);
  const auto& entries = history.entries;
  const Terminal terminal = terminal_at(STDOUT_FILENO);
  const LogTable table(terminal, entries,
                       {std::chrono::system_clock::now(), where.url.has_value(), options.follow});
  const auto render = [&](const HistoryEntry& entry) {
    return options.json ? log_json(entry, where.host) : table.line(entry);
  };
  if (!options.json && entries.empty() && !options.follow) {
    print_message(explain_empty_log(filter, where));
    return 0;
  }
  if (!options.json) print(table.heading());
  LeaseKeys printed;
  for (const HistoryEntry& entry : entries) {
    print(render(entry));
    if (follower && entry.ending != Ending::running) printed.insert(lease_key(entry));
  }
  if (follower) follow_log(*follower, std::move(printed), filter, render);
  return 0;
}

}  // namespace

Action define_log(Flags& command, const CommandContext& /*context*/) {
  auto options = std::make_shared<LogCommandOptions>();
  add_history_flags(command, options->history,
                    "Only leases that ended since: 2h, 7d (default), 2026-11-16");
  command.add_flag("--follow", options->follow, "Keep running, and show each lease when it ends");
  command.add_flag("--json", options->json,
                   "Print a line of JSON for each lease (see docs/json.md)");
  command.set_argument_remedy("for the output of a job: berth logs ID");
  command.set_footer(
      "Shows each lease of the last 7 days in the order of the grants: when it was granted, how\n"
      "long it lasted, how long it had waited, its user and GPUs, and how it ended. \"lost\": the\n"
      "holder was killed (kill -9) or the host crashed, and the time of the end is unknown. All\n"
      "users can read the history; docs/history.md says where it is kept. With BERTH_URL, the\n"
      "history of all hosts is shown.\n"
      "\nExamples:\n"
      "  berth log --since 2h\n"
      "  berth log --user $USER --json | jq -r 'select(.exit_code != 0) | .command'\n"
      "  berth log --follow --gpu 0,1\n"
      "\n'berth logs' prints the output of a detached job.");
  return [options]() { return show_log(*options); };
}

}  // namespace berth
