// The command `berth cancel TICKET… | --all`.
#include <fmt/format.h>
#include <memory>
#include <string>
#include <vector>

#include "base/terminal.h"
#include "cli/command.h"
#include "lease/cancel_and_release.h"

namespace berth {
namespace {

struct CancelCommandOptions {
  std::vector<std::string> tickets;
  bool all = false;
};

Result<int> run(const CancelCommandOptions& options) {
  if (options.all != options.tickets.empty()) {
    return fail(ErrorKind::usage, options.all
                                      ? "cancel: name tickets or use --all, not both"
                                      : "cancel: no ticket given; name one ('berth queue' lists "
                                        "them) or use --all");
  }
  const std::vector<Record> ended =
      TRY(options.all ? cancel_own_tickets() : cancel_tickets(options.tickets));
  for (const Record& ticket : ended) print(fmt::format("ticket {} is cancelled\n", ticket.id));
  if (ended.empty()) print_message("you have no tickets in the queue");
  return 0;
}

}  // namespace

Action define_cancel(Flags& command, const CommandContext& /*context*/) {
  auto options = std::make_shared<CancelCommandOptions>();
  command.add_positionals("TICKET", "Ids of tickets, as 'berth queue' shows them",
                          options->tickets);
  command.add_flag("-a,--all", options->all, "Cancel all of your tickets");
  command.set_footer(
      "The 'berth run' or 'berth acquire' that waits with the ticket exits with code 75. You can\n"
      "cancel only your own tickets; root can cancel all. If one of several tickets cannot be\n"
      "cancelled, none is cancelled.\n"
      "\nExamples:\n"
      "  berth cancel k3f9a2mx\n"
      "  berth cancel --all\n"
      "\nExit codes: 0 done; 64 there is no such ticket; 74 the harbour cannot be used; 77 the\n"
      "ticket belongs to another user.");
  return [options]() { return run(*options); };
}

}  // namespace berth
