// The main function of berth. All other code is in libraries.
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "base/descriptors.h"
#include "cli/program.h"
#include "cluster/remote/remote_job_spec.h"
#include "devices/guarded_probe.h"
#include "devices/placeholder.h"

namespace {

// A limit of file sizes (ulimit -f) makes the kernel send SIGXFSZ, which ends a process that writes
// too much: berth could neither pass on the job's exit code nor release the lease. With a handler
// the write fails instead (EFBIG). A handler is not inherited by the job, unlike SIG_IGN.
void survive_file_size_limit() {
  struct sigaction action {};
  if (::sigaction(SIGXFSZ, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return;
  action.sa_handler = [](int) {};
  ::sigaction(SIGXFSZ, &action, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  berth::fill_closed_standard_descriptors();
  survive_file_size_limit();
  try {
    if (berth::is_helper(argc, argv)) {
      return berth::run_helper(argc, argv, {berth::kProbeHelper, berth::kPlaceholderHelper});
    }
    const auto arguments = berth::copy_and_mask_arguments(argc, argv);
    std::vector<const char*> argument_pointers;
    argument_pointers.reserve(arguments.size());
    for (const std::string& argument : arguments) argument_pointers.push_back(argument.c_str());
    return berth::run_program(argc, argument_pointers.data());
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "berth: internal error: %s; please report it\n", problem.what());
    return 70;
  }
}
