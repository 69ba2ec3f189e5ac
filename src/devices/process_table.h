// Who a process is, by the kernel's word: its real user and its name, from /proc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>

namespace berth {

struct ProcessIdentity {
  uid_t uid = 0;
  std::string name;
};

// Nothing if the process is gone, hidden from us (hidepid), or if our PIDs are not the host's: in a
// container a driver's PID may be the number of a quite different process, and a wrong name is
// worse than none. A missing PID is not proof of death.
std::optional<ProcessIdentity> identify_process(std::int64_t pid);

}  // namespace berth
