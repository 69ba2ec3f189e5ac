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
      Command{"run", "Wait for GPUs, run a command on them, give them back", define_run, true, true,
              TrailingCommand::from_first_word},
      Command{"batch", "Run many commands over the GPUs, as leases come", define_batch, true, false,
              TrailingCommand::after_dashes},
      Command{"acquire", "Lease GPUs for the calling shell or script", define_acquire, true, true,
              TrailingCommand::none, acquire_failure_output},
      Command{"release", "Give leases back while their shell lives", define_release, true},
      Command{"status", "Show every GPU: its state, memory, load and processes", define_status,
              true, true},
      Command{"top", "Watch GPUs, leases and queue, full-screen", define_top, true},
      Command{"queue", "Show who waits, since when, and why", define_queue, true, true},
      Command{"cancel", "Leave the queue", define_cancel, true},
      Command{"log", "Show who had which GPUs, when, and how it ended", define_log, true},
      Command{"report", "Show GPU-hours, waiting and idleness by user and job", define_report,
              true},
      Command{"profile", "Show, set and forget what was learned of jobs", define_profile, true,
              false, TrailingCommand::after_dashes},
      Command{"drain", "Take GPUs out of service", define_drain, true},
      Command{"undrain", "Take GPUs back into service", define_undrain, true},
      Command{"serve", "Show GPUs, queue and history as a web page and as metrics", define_serve,
              true},
      Command{"compat", "Run a command of an older tool on berth's leases", define_compat, false,
              false, TrailingCommand::from_first_word},
      Command{"doctor", "Check the installation, and explain what is wrong", define_doctor, true},
      Command{"setup", "As root: set the harbour up for all users of this host", define_setup},
      Command{"completion", "Print the completion script for a shell", define_completion},
      Command{"help", "Show help for a command", define_help},
  };
  return table;
}

Error unknown_command_error(std::string_view name) {
  std::string hint;
  for (const Command& command : commands()) {
    if (name.size() < 64 && edit_distance(name, command.name) <= 2) {
      hint = fmt::format("did you mean '{}'? ", command.name);
    }
  }
  return {ErrorKind::usage, fmt::format("{} is not a command; {}'berth --help' lists the commands",
                                        in_quotes(name), hint)};
}

}  // namespace berth
