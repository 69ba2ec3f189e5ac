// berth setup [--dry-run] [--remove]
#include "harbour/setup.h"

#include <fmt/format.h>
#include <memory>
#include <unistd.h>

#include "base/environment.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/output/terminal.h"

namespace berth {
namespace {

struct Options {
  SetupOptions setup;
  bool remove = false;
};

Result<int> setup(Options& options) {
  options.setup.where = harbour_location();
  if (!setting("BERTH_SIM").empty() && !options.setup.where.chosen) {
    return fail(ErrorKind::usage,
                "setup: BERTH_SIM is set, and a simulated server needs no setup; unset it, or set "
                "BERTH_DIR");
  }
  // Who only wants to know what it would do needs no root.
  if (::geteuid() != 0 && !options.setup.dry_run) {
    return fail(ErrorKind::not_yours, "setup changes the host; run: sudo berth setup");
  }
  const auto deeds = options.remove ? remove_tmpfiles(options.setup) : set_up(options.setup);
  if (!deeds) return tl::make_unexpected(deeds.error());
  const Terminal terminal = terminal_at(STDOUT_FILENO);
  for (const std::string& deed : *deeds) print(fmt::format("{}\n", terminal.show(deed)));
  if (deeds->empty()) {
    print(options.remove ? std::string("Nothing to remove.\n")
                         : fmt::format("Nothing to do: {} is set up.\n",
                                       terminal.show(in_quotes(options.setup.where.path))));
  }
  return 0;
}

}  // namespace

Action define_setup(Flags& command, CLI::App& /*program*/) {
  auto options = std::make_shared<Options>();
  command.flag("--dry-run", options->setup.dry_run, "Say what would be done, and do nothing");
  command.flag("--remove", options->remove,
               "Remove what keeps the harbour over reboots; leave the harbour");
  command.group("");
  command.value("--tmpfiles-dir", "DIR", "Where berth.conf goes",
                [options](std::string_view text) -> Result<void> {
                  options->setup.tmpfiles = text;
                  return {};
                });
  command.footer(
      "Makes the harbour root's, with mode 1777, so that nobody can delete another's lease, and\n"
      "writes /etc/tmpfiles.d/berth.conf, which keeps it over reboots and out of age-based\n"
      "cleaning. Running jobs keep their leases. It can be run again at any time.\n"
      "Berth works without it: then the harbour belongs to whoever used it first.\n"
      "\nsudo does not pass BERTH_DIR on. For a harbour elsewhere, name it:\n"
      "  sudo BERTH_DIR=/srv/berth berth setup\n"
      "\nFor packagers: --tmpfiles-dir DIR writes berth.conf to DIR.\n"
      "\nExit codes: 0 done, 64 wrong usage, 74 the harbour cannot be set up, 77 not root.");
  return [options]() { return setup(*options); };
}

}  // namespace berth
