// berth queue [--json]
#include <memory>
#include <unistd.h>

#include "broker/status.h"
#include "cli/command.h"
#include "cli/output/status_json.h"
#include "cli/output/status_text.h"
#include "devices/driver.h"

namespace berth {

Action define_queue(Flags& command, CLI::App& /*program*/) {
  auto json = std::make_shared<bool>(false);
  command.flag("--json", *json, "Print JSON, as docs/json.md describes it");
  command.footer(
      "Every ticket in the order of the queue: its id, who waits, what for, since when, and why.\n"
      "An estimate is there when the leases in the way said how long they run (--time).\n"
      "\nExamples:\n"
      "  berth queue\n"
      "  berth queue --json | jq -r '.queue[] | select(.user == env.USER) | .ticket'");
  return [json]() -> Result<int> {
    auto probe = open_driver(say_driver_is_slow);
    if (!probe) return tl::make_unexpected(probe.error());
    const auto status = observe(**probe, driver_is_simulated());
    if (!status) return tl::make_unexpected(status.error());
    print(*json ? queue_json(*status, JsonForm::pretty)
                : queue_text(*status, terminal_at(STDOUT_FILENO)));
    return 0;
  };
}

}  // namespace berth
