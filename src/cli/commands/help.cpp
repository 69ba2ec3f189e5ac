// The command `berth help [COMMAND]`.
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <memory>
#include <string>

#include "base/terminal.h"
#include "cli/command.h"

namespace berth {

Action define_help(Flags& command, const CommandContext& context) {
  auto topic = std::make_shared<std::string>();
  command.parser().add_option("COMMAND", *topic, "Command to show help for")->type_name("");
  return [topic, &program = context.program]() -> Result<int> {
    if (topic->empty()) {
      // Not program.help(), which would show the help of the chosen command: "help" itself.
      print(program.get_formatter()->make_help(&program, program.get_name(),
                                               CLI::AppFormatMode::Normal));
      return 0;
    }
    const auto found = program.get_subcommands(
        [&](const CLI::App* candidate) { return candidate->get_name() == *topic; });
    if (found.empty()) return tl::make_unexpected(unknown_command_error(*topic));
    print(found.front()->help(program.get_name()));
    return 0;
  };
}

}  // namespace berth
