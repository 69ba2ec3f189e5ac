// PID namespaces, by /proc/self/ns/pid; see pid_namespace.h.
#include "base/pid_namespace.h"

#include <sys/stat.h>

namespace berth {
namespace {

// The kernel's fixed inode number of the first PID namespace (PROC_PID_INIT_INO).
constexpr std::uint64_t kHostPidNamespace = 4026531836;

}  // namespace

std::uint64_t pid_namespace() {
  struct stat about {};
  return ::stat("/proc/self/ns/pid", &about) == 0 ? about.st_ino : 0;
}

bool in_host_pid_namespace() {
  return pid_namespace() == kHostPidNamespace;
}

}  // namespace berth
