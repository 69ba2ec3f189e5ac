// The command `berth doctor [-v] [--json]`.
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
  struct DoctorCommandOptions {
    bool verbose = false;
    bool json = false;
  };
  auto options = std::make_shared<DoctorCommandOptions>();
  command.add_flag("-v,--verbose", options->verbose,
                   "Show every finding, and the checks that are ok");
  command.add_flag("--json", options->json, "Print JSON: all checks (see docs/json.md)");
  command.set_footer(
      "Checks the driver, the harbour and its contents, resource limits and /proc. Shows the\n"
      "problems, then the notes, and counts the checks that are ok. A note is worth knowing; a\n"
      "problem keeps users from GPUs or makes leases unsafe. Below each finding is its remedy.\n"
      "The command changes nothing.\n"
      "\nExamples:\n"
      "  berth doctor\n"
      "  berth doctor -v\n"
      "  berth doctor --json | jq -r '.findings[] | select(.level == \"problem\") | .text'\n"
      "\nExit codes: 0 no problem, 1 a problem, 64 wrong usage.");
  return [options]() -> Result<int> {
    const Findings findings = run_checks(print_driver_is_slow);
    print(options->json ? doctor_json(findings)
                        : doctor_text(findings, terminal_at(STDOUT_FILENO), options->verbose));
    const bool healthy = std::none_of(findings.begin(), findings.end(), [](const Finding& one) {
      return one.level == Level::problem;
    });
    return healthy ? 0 : kExitProblem;
  };
}

}  // namespace berth
