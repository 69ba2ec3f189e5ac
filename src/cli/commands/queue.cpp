// The command `berth queue [-a] [--json]`.
#include <memory>
#include <unistd.h>
#include <vector>

#include "cli/command.h"
#include "cli/output/status_text.h"
#include "cluster/store/hosts.h"
#include "devices/driver.h"
#include "status/status.h"
#include "status/status_json.h"

namespace berth {

Action define_queue(Flags& command, const CommandContext& /*context*/) {
  struct QueueCommandOptions {
    bool all = false;
    bool json = false;
  };
  auto options = std::make_shared<QueueCommandOptions>();
  command.add_flag("-a,--all", options->all, "All hosts that share this harbour (BERTH_URL)");
  command.add_flag("--json", options->json, "Print JSON (see docs/json.md)");
  command.set_footer(
      "Shows every ticket in the order of the queue: its id, when it is expected to start, how\n"
      "long it waits, its user ('*': you) and request, and why it waits. A start is expected if\n"
      "the leases and tickets in its way have an expected end: announced with --time, or known\n"
      "from earlier runs.\n"
      "\nExamples:\n"
      "  berth queue\n"
      "  berth queue --json | jq -r '.queue[] | select(.user == env.USER) | .ticket'");
  return [options]() -> Result<int> {
    const Terminal terminal = terminal_at(STDOUT_FILENO);
    auto probe = open_driver(print_driver_is_slow);
    if (options->all) {
      const std::vector<Status> hosts = TRY(observe_all(probe ? probe->get() : nullptr));
      print(options->json ? hosts_queue_json(hosts, JsonForm::pretty)
                          : hosts_queue_text(hosts, terminal, ::geteuid()));
      return 0;
    }
    if (!probe) return tl::make_unexpected(probe.error());
    const Status status = TRY(observe_host(**probe, is_driver_simulated()));
    print(options->json ? queue_json(status, JsonForm::pretty)
                        : queue_text(status, terminal, ::geteuid()));
    return 0;
  };
}

}  // namespace berth
