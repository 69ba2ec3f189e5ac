// PID namespaces, by /proc/self/ns/pid; see pid_namespace.h.
#include "base/pid_namespace.h"

#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

namespace berth {
namespace {

// The kernel's fixed inode number of the first PID namespace (PROC_PID_INIT_INO).
constexpr std::uint64_t kHostPidNamespace = 4026531836;

}  // namespace

std::uint64_t pid_namespace() {
  // It never changes for a process; a child may be in another, and then it has another PID.
  thread_local pid_t cached_pid = 0;
  thread_local std::uint64_t cached_namespace = 0;
  if (const pid_t pid = ::getpid(); pid != cached_pid) {
    struct stat info {};
    cached_namespace = ::stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
    cached_pid = pid;
  }
  return cached_namespace;
}

bool is_in_host_pid_namespace() {
  return pid_namespace() == kHostPidNamespace;
}

}  // namespace berth
