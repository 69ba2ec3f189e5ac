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
  thread_local pid_t asked = 0;
  thread_local std::uint64_t known = 0;
  if (const pid_t me = ::getpid(); me != asked) {
    struct stat about {};
    known = ::stat("/proc/self/ns/pid", &about) == 0 ? about.st_ino : 0;
    asked = me;
  }
  return known;
}

bool in_host_pid_namespace() {
  return pid_namespace() == kHostPidNamespace;
}

}  // namespace berth
