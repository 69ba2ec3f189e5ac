// The table of commands; see command.h.
#include "cli/command.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <string_view>
#include <vector>

#include "base/suggestion.h"
#include "base/text.h"

namespace berth {
namespace {

// Commands of other tools, and words that users try.
struct CommandSynonym {
  std::string_view word;
  const char* command;
};
constexpr std::array kCommandSynonyms{
    CommandSynonym{"ls", "status"},        CommandSynonym{"list", "status"},
    CommandSynonym{"ps", "status"},        CommandSynonym{"info", "status"},
    CommandSynonym{"show", "status"},      CommandSynonym{"gpus", "status"},
    CommandSynonym{"sinfo", "status"},     CommandSynonym{"nvidia-smi", "status"},
    CommandSynonym{"gpustat", "status"},   CommandSynonym{"watch", "top"},
    CommandSynonym{"htop", "top"},         CommandSynonym{"nvitop", "top"},
    CommandSynonym{"nvtop", "top"},        CommandSynonym{"squeue", "queue"},
    CommandSynonym{"waiting", "queue"},    CommandSynonym{"kill", "cancel"},
    CommandSynonym{"scancel", "cancel"},   CommandSynonym{"stop", "cancel"},
    CommandSynonym{"rm", "cancel"},        CommandSynonym{"remove", "cancel"},
    CommandSynonym{"tail", "logs"},        CommandSynonym{"history", "log"},
    CommandSynonym{"sacct", "log"},        CommandSynonym{"stats", "report"},
    CommandSynonym{"usage", "report"},     CommandSynonym{"exec", "run"},
    CommandSynonym{"start", "run"},        CommandSynonym{"srun", "run"},
    CommandSynonym{"sbatch", "run -d"},    CommandSynonym{"submit", "run -d"},
    CommandSynonym{"add", "batch"},        CommandSynonym{"lock", "acquire"},
    CommandSynonym{"alloc", "acquire"},    CommandSynonym{"allocate", "acquire"},
    CommandSynonym{"salloc", "acquire"},   CommandSynonym{"lease", "acquire"},
    CommandSynonym{"reserve", "acquire"},  CommandSynonym{"free", "release"},
    CommandSynonym{"unlock", "release"},   CommandSynonym{"disable", "drain"},
    CommandSynonym{"enable", "undrain"},   CommandSynonym{"resume", "undrain"},
    CommandSynonym{"web", "serve"},        CommandSynonym{"ui", "serve"},
    CommandSynonym{"dashboard", "serve"},  CommandSynonym{"check", "doctor"},
    CommandSynonym{"diagnose", "doctor"},  CommandSynonym{"install", "setup"},
    CommandSynonym{"init", "setup"},       CommandSynonym{"version", "--version"},
    CommandSynonym{"fg", "attach"},        CommandSynonym{"settings", "config"},
    CommandSynonym{"configure", "config"}, CommandSynonym{"claim", "adopt"},
};

std::string suggest_command(std::string_view name) {
  const std::string word = lower_case(name);
  const auto* const synonym =
      std::find_if(kCommandSynonyms.begin(), kCommandSynonyms.end(),
                   [&](const CommandSynonym& one) { return one.word == word; });
  if (synonym != kCommandSynonyms.end()) return synonym->command;
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    if (command.group != CommandGroup::hidden) names.emplace_back(command.name);
  }
  return find_similar_word(name, names);
}

}  // namespace

std::span<const Command> commands() {
  using enum CommandGroup;
  static constexpr std::array table{
      Command{jobs, "run", "Wait for GPUs, run a command on them, and release them", define_run,
              true, true, TrailingCommand::from_first_word},
      Command{jobs, "batch", "Run a list of commands, each as soon as GPUs are granted",
              define_batch, true, false, TrailingCommand::list_after_dashes},
      Command{jobs, "acquire", "Lease GPUs for the calling shell or script", define_acquire, true,
              true, TrailingCommand::none, acquire_failure_output},
      Command{jobs, "adopt", "Lease the GPUs that a process of yours uses already", define_adopt,
              true},
      Command{jobs, "jobs", "Show your jobs: waiting, running and ended", define_jobs, true},
      Command{jobs, "logs", "Print the output of a detached job", define_logs, true},
      Command{jobs, "wait", "Wait until jobs end, and exit with their exit code", define_wait,
              true},
      Command{jobs, "attach", "Follow the output of a detached job, and end it by a key",
              define_attach, true},
      Command{jobs, "release", "Release leases", define_release, true},
      Command{jobs, "cancel", "Remove from the queue, or end a job", define_cancel, true},
      Command{jobs, "extend", "Move the announced end of a running job", define_extend, true, false,
              TrailingCommand::none, nullptr, "DURATION"},
      Command{display, "status", "Show every GPU: its state, memory, load and processes",
              define_status, true, true},
      Command{display, "top", "Watch GPUs, leases and the queue, full-screen", define_top, true},
      Command{display, "queue", "Show the queue: each ticket, since when it waits, and why",
              define_queue, true, true},
      Command{display, "log", "Show the history of leases: user, GPUs, times and result",
              define_log, true},
      Command{display, "report", "Show GPU-hours, waiting time and idle time by user and job",
              define_report, true},
      Command{display, "profile", "Show, set and forget profiles (memory and run time of jobs)",
              define_profile, true, false, TrailingCommand::after_dashes, nullptr, "TYPE"},
      Command{display, "serve", "Serve GPUs, queue and history as a web page and as metrics",
              define_serve, true},
      Command{administration, "doctor", "Check the installation and explain problems",
              define_doctor, true},
      Command{administration, "setup", "Set up the harbour for all users of this host (as root)",
              define_setup},
      Command{administration, "drain", "Take GPUs out of service", define_drain, true},
      Command{administration, "undrain", "Return GPUs to service", define_undrain, true},
      Command{tools, "config", "Show each setting, its value and where it comes from",
              define_config, true},
      Command{tools, "compat", "Run a command of an older tool with leases from berth",
              define_compat, false, false, TrailingCommand::from_first_word},
      Command{tools, "mcp", "Serve status, jobs and submission to agents (MCP)", define_mcp, true},
      Command{tools, "completion", "Print the completion script for a shell", define_completion},
      Command{tools, "help", "Show help for a command", define_help},
      Command{hidden, "complete", "", define_complete, false, false, TrailingCommand::after_dashes},
  };
  return table;
}

std::size_t find_trailing_command(const Flags& flags, TrailingCommand kind,
                                  std::span<const char* const> words) {
  if (kind == TrailingCommand::none) return words.size();
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word == "--") return i;
    if (!word.starts_with('-') && kind == TrailingCommand::from_first_word) return i;
    const Option* const flag = flags.find(word);
    const bool has_value = i + 1 < words.size() && std::string_view(words[i + 1]) != "--";
    if (flag != nullptr && flag->value == Option::Value::required && has_value) ++i;
  }
  return words.size();
}

Error unknown_command_error(std::string_view name) {
  const std::string suggestion = suggest_command(name);
  const std::string remedy = suggestion.empty()
                                 ? "'berth --help' lists the commands"
                                 : fmt::format("did you mean 'berth {}'?", suggestion);
  return {ErrorKind::usage, fmt::format("{} is not a command; {}", in_quotes(name), remedy)};
}

}  // namespace berth
