// The command `berth mcp [--allow-changes]`.
#include <memory>

#include "cli/command.h"
#include "mcp/server.h"

namespace berth {

Action define_mcp(Flags& command, const CommandContext& /*context*/) {
  auto allow_changes = std::make_shared<bool>(false);
  command.add_flag("--allow-changes", *allow_changes,
                   "Also offer tools that submit and cancel jobs");
  command.set_footer(
      "Serves the Model Context Protocol on stdin and stdout, for agents. The tools run berth\n"
      "commands as your user: status, queue, jobs, explain, logs, wait, report and, with\n"
      "--allow-changes, submit and cancel. A change can be previewed (argument preview).\n"
      "\nExamples:\n"
      "  claude mcp add berth -- berth mcp\n"
      "  berth mcp --allow-changes\n"
      "\nExit code: 0 when stdin has ended.");
  return [allow_changes]() { return mcp::serve(*allow_changes); };
}

}  // namespace berth
