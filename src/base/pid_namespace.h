// PID namespaces: whether a PID means the same process to two programs.
#pragma once

#include <cstdint>

namespace berth {

// The number of this process's PID namespace; 0 if the kernel does not say.
std::uint64_t pid_namespace();

// Are this process's PIDs the host's?
bool is_in_host_pid_namespace();

}  // namespace berth
