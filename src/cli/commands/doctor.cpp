// The command `berth doctor [--json]`.
#include <algorithm>
#include <memory>
#include <unistd.h>

#include "base/terminal.h"
#include "cli/command.h"
#include "doctor/collect.h"
#include "doctor/doctor_text.h"

namespace berth {
namespace {

constexpr int kExitProblem = 1;  // only doctor uses it

}  // namespace

Action define_doctor(Flags& command, const CommandContext& /*context*/) {
  auto json = std::make_shared<bool>(false);
  command.add_flag("--json", *json, "Print JSON (see docs/json.md)");
  command.set_footer(
      "Checks the driver, the harbour and its contents, resource limits and /proc, and reports\n"
      "whether each is ok. A note is worth knowing; a problem keeps users from GPUs or makes\n"
      "leases unsafe. Below each finding is its remedy. The command changes nothing.\n"
      "\nExamples:\n"
      "  berth doctor\n"
      "  berth doctor --json | jq -r '.findings[] | select(.level == \"problem\") | .text'\n"
      "\nExit codes: 0 no problem, 1 a problem, 64 wrong usage.");
  return [json]() -> Result<int> {
    const Findings findings = run_checks(print_driver_is_slow);
    print(*json ? doctor_json(findings) : doctor_text(findings, terminal_at(STDOUT_FILENO)));
    const bool healthy = std::none_of(findings.begin(), findings.end(), [](const Finding& one) {
      return one.level == Level::problem;
    });
    return healthy ? 0 : kExitProblem;
  };
}

}  // namespace berth
