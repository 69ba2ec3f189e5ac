// The table of commands; see command.h.
#include "cli/command.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <numeric>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace berth {
namespace {

// The number of letters to insert, delete or replace that turns `a` into `b`.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({change, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::span<const Command> commands() {
  static constexpr std::array table{
      Command{"run", "Wait for GPUs, run a command on them, and release them", define_run, true,
              true, TrailingCommand::from_first_word},
      Command{"batch", "Run a list of commands, each as soon as GPUs are granted", define_batch,
              true, false, TrailingCommand::after_dashes},
      Command{"acquire", "Lease GPUs for the calling shell or script", define_acquire, true, true,
              TrailingCommand::none, acquire_failure_output},
      Command{"release", "Release leases", define_release, true},
      Command{"status", "Show every GPU: its state, memory, load and processes", define_status,
              true, true},
      Command{"top", "Watch GPUs, leases and the queue, full-screen", define_top, true},
      Command{"queue", "Show the queue: each ticket, since when it waits, and why", define_queue,
              true, true},
      Command{"cancel", "Remove tickets from the queue", define_cancel, true},
      Command{"log", "Show the history of leases: user, GPUs, times and result", define_log, true},
      Command{"report", "Show GPU-hours, waiting time and idle time by user and job", define_report,
              true},
      Command{"profile", "Show, set and forget profiles (memory and run time of jobs)",
              define_profile, true, false, TrailingCommand::after_dashes},
      Command{"drain", "Take GPUs out of service", define_drain, true},
      Command{"undrain", "Return GPUs to service", define_undrain, true},
      Command{"serve", "Serve GPUs, queue and history as a web page and as metrics", define_serve,
              true},
      Command{"compat", "Run a command of an older tool with leases from berth", define_compat,
              false, false, TrailingCommand::from_first_word},
      Command{"doctor", "Check the installation and explain problems", define_doctor, true},
      Command{"setup", "Set up the harbour for all users of this host (as root)", define_setup},
      Command{"completion", "Print the completion script for a shell", define_completion},
      Command{"help", "Show help for a command", define_help},
  };
  return table;
}

Error unknown_command_error(std::string_view name) {
  std::string remedy = "'berth --help' lists the commands";
  std::size_t nearest = 3;  // a command with more than two wrong letters is not suggested
  for (const Command& command : commands()) {
    const std::size_t distance = name.size() < 64 ? edit_distance(name, command.name) : nearest;
    if (distance >= nearest) continue;
    nearest = distance;
    remedy = fmt::format("did you mean '{}'?", command.name);
  }
  return {ErrorKind::usage, fmt::format("{} is not a command; {}", in_quotes(name), remedy)};
}

}  // namespace berth
