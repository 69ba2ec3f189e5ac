// What a command of berth is: a name, a line of help, and how it declares its flags.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/flags.h"

namespace berth {

// Runs a command whose flags have been parsed; gives the exit code.
using Action = std::function<Result<int>()>;

// Which words of a command line are a command line of their own, see trailing_command().
enum class TrailingCommand : std::uint8_t { none, from_first_word, after_dashes };

struct Command {
  const char* name;
  const char* summary;
  // Declares flags on `command` and returns what to run. `program` is the whole command line, which
  // lives as long as the action.
  Action (*define)(Flags& command, CLI::App& program);
  bool uses_harbour = false;
  bool needs_driver = false;  // always, and at once
  TrailingCommand trailing = TrailingCommand::none;
  // What to print for who reads its output, where it ended with this code; see
  // acquire_failure_output().
  std::string (*failure_output)(int code, std::span<const char* const> words) = nullptr;
};

// The command line that the user wants to run: what follows "--", or (from_first_word) the first
// word that is no flag. The parser never sees it, since it would take a word such as [1,2] apart.
std::vector<std::string>& trailing_command();

// Every command, in the order in which help shows them.
std::span<const Command> commands();

// Says that `name` is no command, and which one was perhaps meant.
Error unknown_command_error(std::string_view name);

Action define_run(Flags& command, CLI::App& program);
Action define_batch(Flags& command, CLI::App& program);
Action define_acquire(Flags& command, CLI::App& program);
std::string acquire_failure_output(int code, std::span<const char* const> words);
Action define_release(Flags& command, CLI::App& program);
Action define_queue(Flags& command, CLI::App& program);
Action define_cancel(Flags& command, CLI::App& program);
Action define_log(Flags& command, CLI::App& program);
Action define_report(Flags& command, CLI::App& program);
Action define_profile(Flags& command, CLI::App& program);
Action define_drain(Flags& command, CLI::App& program);
Action define_undrain(Flags& command, CLI::App& program);
Action define_serve(Flags& command, CLI::App& program);
Action define_status(Flags& command, CLI::App& program);
Action define_top(Flags& command, CLI::App& program);
Action define_compat(Flags& command, CLI::App& program);
Action define_doctor(Flags& command, CLI::App& program);
Action define_setup(Flags& command, CLI::App& program);
Action define_help(Flags& command, CLI::App& program);
Action define_completion(Flags& command, CLI::App& program);

}  // namespace berth
