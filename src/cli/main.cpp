// The berth program. Everything but this function is in libraries.
#include <cstdio>
#include <exception>

#include "base/descriptors.h"
#include "cli/program.h"
#include "devices/guarded_probe.h"
#include "devices/placeholder.h"

int main(int argc, char** argv) {
  berth::fill_closed_standard_descriptors();
  try {
    if (berth::is_helper(argc, argv)) {
      return berth::be_helper(argc, argv, {berth::kProbeHelper, berth::kPlaceholderHelper});
    }
    return berth::run_program(argc, argv);
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "berth: internal error: %s; please report it\n", problem.what());
    return 70;
  }
}
