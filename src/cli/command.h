// A command of berth: its name, its line of help, and the function that declares its flags.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/flags.h"

namespace berth {

// Runs a command whose flags have been parsed; returns the exit code.
using Action = std::function<Result<int>()>;

// Where the trailing command of a command line begins; see CommandContext::trailing_command.
enum class TrailingCommand : std::uint8_t {
  none,
  from_first_word,
  after_dashes,
  list_after_dashes,  // each word is a command line
};

// The headings under which the help lists the commands; `hidden` commands are not listed.
enum class CommandGroup : std::uint8_t { jobs, display, administration, tools, hidden };

struct Command;

struct DeclaredCommand {
  const Command& command;
  Flags flags{};
  Action action{};
};

// What the program passes to the commands that it declares. Outlives their actions.
struct CommandContext {
  std::deque<DeclaredCommand> commands;  // all of them for `help` and `completion`, otherwise one

  // The command line that the user wants to run: the words behind "--", or (from_first_word) from
  // the first word that is not a flag. Filled in after the command was declared, before its action
  // runs. The parser never sees these words: it would split a word such as [1,2].
  std::vector<std::string> trailing_command;
};

struct Command {
  CommandGroup group;
  const char* name;
  const char* summary;
  // Declares flags on `command` and returns the action. The action may refer to `context`.
  Action (*define)(Flags& command, const CommandContext& context);
  bool uses_harbour = false;
  bool needs_driver = false;  // in every use: the driver is queried before the flags are parsed
  TrailingCommand trailing = TrailingCommand::none;
  // Text for the shell that evaluates stdout, if the command fails with `code`.
  std::string (*failure_output)(int code, std::span<const char* const> words) = nullptr;
  // What the arguments behind the first one are, for completion; null: the same as the first.
  const char* later_arguments = nullptr;
};

// The help of the whole program, and of one command.
std::string format_program_help();
std::string format_command_help(const DeclaredCommand& declared);

// Every command, in the order in which help shows them.
std::span<const Command> commands();

// The index in `words`, the words behind the command's name, where its trailing command begins (at
// "--", if that precedes it); words.size() if there is none.
std::size_t find_trailing_command(const Flags& flags, TrailingCommand kind,
                                  std::span<const char* const> words);

// The error for an unknown command `name`, with a suggestion if a similar command exists.
Error unknown_command_error(std::string_view name);

Action define_run(Flags& command, const CommandContext& context);
Action define_batch(Flags& command, const CommandContext& context);
Action define_acquire(Flags& command, const CommandContext& context);
std::string acquire_failure_output(int code, std::span<const char* const> words);
Action define_adopt(Flags& command, const CommandContext& context);
Action define_jobs(Flags& command, const CommandContext& context);
Action define_logs(Flags& command, const CommandContext& context);
Action define_wait(Flags& command, const CommandContext& context);
Action define_attach(Flags& command, const CommandContext& context);
Action define_release(Flags& command, const CommandContext& context);
Action define_queue(Flags& command, const CommandContext& context);
Action define_cancel(Flags& command, const CommandContext& context);
Action define_extend(Flags& command, const CommandContext& context);
Action define_log(Flags& command, const CommandContext& context);
Action define_report(Flags& command, const CommandContext& context);
Action define_profile(Flags& command, const CommandContext& context);
Action define_drain(Flags& command, const CommandContext& context);
Action define_undrain(Flags& command, const CommandContext& context);
Action define_serve(Flags& command, const CommandContext& context);
Action define_status(Flags& command, const CommandContext& context);
Action define_top(Flags& command, const CommandContext& context);
Action define_compat(Flags& command, const CommandContext& context);
Action define_doctor(Flags& command, const CommandContext& context);
Action define_setup(Flags& command, const CommandContext& context);
Action define_mcp(Flags& command, const CommandContext& context);
Action define_help(Flags& command, const CommandContext& context);
Action define_config(Flags& command, const CommandContext& context);
Action define_completion(Flags& command, const CommandContext& context);
Action define_complete(Flags& command, const CommandContext& context);

}  // namespace berth
