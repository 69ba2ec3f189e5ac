// The command `berth setup [--dry-run] [--remove]`.
#include "harbour/setup.h"

#include <fmt/format.h>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

#include "base/environment.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/command.h"

namespace berth {
namespace {

struct SetupCommandOptions {
  SetupOptions setup;
  bool remove = false;
};

Result<int> setup(SetupCommandOptions& options) {
  options.setup.location = harbour_location();
  if (!get_env_or_empty("BERTH_SIM").empty() && !options.setup.location.is_custom) {
    return fail(
        ErrorKind::usage,
        "setup: BERTH_SIM is set, and a simulated server needs no setup; unset BERTH_SIM, or "
        "set BERTH_DIR");
  }
  // A dry run does not need root.
  if (::geteuid() != 0 && !options.setup.dry_run) {
    return fail(ErrorKind::permission, "setup needs root; run: sudo berth setup");
  }
  const std::vector<std::string> actions =
      TRY(options.remove ? remove_tmpfiles(options.setup) : set_up_harbour(options.setup));
  const Terminal terminal = terminal_at(STDOUT_FILENO);
  for (const std::string& action : actions) {
    print(fmt::format("{}\n", terminal.escape(action)));
  }
  if (actions.empty()) {
    print(options.remove ? std::string("Nothing to remove.\n")
                         : fmt::format("Nothing to do: {} is set up.\n",
                                       terminal.escape(in_quotes(options.setup.location.path))));
  }
  return 0;
}

}  // namespace

Action define_setup(Flags& command, const CommandContext& /*context*/) {
  auto options = std::make_shared<SetupCommandOptions>();
  command.add_flag("--dry-run", options->setup.dry_run,
                   "Show what would be done, and change nothing");
  command.add_flag("--remove", options->remove,
                   "Remove /etc/tmpfiles.d/berth.conf, but keep the harbour");
  command.set_group("");
  command.add_text("--tmpfiles-dir", "DIR", "Folder for berth.conf", options->setup.tmpfiles);
  command.set_footer(
      "Makes root the owner of the harbour and the history, with mode 1777 and without access\n"
      "control lists, so that no user can delete another user's lease. Writes\n"
      "/etc/tmpfiles.d/berth.conf, which keeps both over reboots and excludes them from age-based\n"
      "cleaning. Running jobs keep their leases. Setup can be run again at any time. Anything\n"
      "else that a user has put at /tmp/berth is moved aside.\n"
      "Berth works without setup: then the harbour belongs to the user who used it first.\n"
      "\nsudo does not pass on BERTH_DIR. For a harbour in another place, name it:\n"
      "  sudo BERTH_DIR=/srv/berth berth setup\n"
      "\nFor packagers: --tmpfiles-dir DIR writes berth.conf to DIR.\n"
      "\nExit codes: 0 done, 64 wrong usage, 74 the harbour cannot be set up, 77 not root.");
  return [options]() { return setup(*options); };
}

}  // namespace berth
