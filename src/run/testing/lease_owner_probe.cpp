// For lease_owner_test.cpp: prints the PID and the name of the process that find_lease_owner()
// finds, or the exit code of its error and the message. An argument is the explicit PID.
#include <cstdio>
#include <cstdlib>

#include "run/lease_owner.h"

int main(int argc, char** argv) {
  std::optional<pid_t> pid;
  if (argc > 1) pid = static_cast<pid_t>(std::strtol(argv[1], nullptr, 10));
  const auto owner = berth::find_lease_owner(pid);
  if (!owner) {
    std::printf("error %d %s\n", berth::exit_code(owner.error().kind),
                owner.error().message.c_str());
    return 0;
  }
  std::printf("%d %s\n", owner->pid, owner->name.c_str());
  return 0;
}
