// The command `berth help [COMMAND]`.
#include <algorithm>
#include <memory>
#include <string>

#include "base/terminal.h"
#include "cli/command.h"

namespace berth {

Action define_help(Flags& command, const CommandContext& context) {
  auto topic = std::make_shared<std::string>();
  command.add_text("COMMAND", "", "Command to show help for", *topic);
  return [topic, &context]() -> Result<int> {
    if (topic->empty()) {
      print(format_program_help());
      return 0;
    }
    const auto found = std::find_if(
        context.commands.begin(), context.commands.end(),
        [&](const DeclaredCommand& declared) { return declared.command.name == *topic; });
    if (found == context.commands.end()) return tl::make_unexpected(unknown_command_error(*topic));
    print(format_command_help(*found));
    return 0;
  };
}

}  // namespace berth
