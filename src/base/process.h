// Processes: their state in /proc, handles that stay valid when PIDs are reused, PID namespaces.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "base/unique_fd.h"

namespace berth {

struct ProcessStat {
  std::string name;  // chosen by the process: pass it through printable() before showing it
  pid_t parent = 0;  // 0 if the parent is outside this PID namespace
  pid_t group = 0;   // the process group
  pid_t session = 0;
  bool stopped = false;  // by a signal (Ctrl-Z, SIGSTOP); not by a tracer
  bool ran_exec = true;  // false: forked without exec, so it still runs its parent's program
  std::uint64_t start_ticks = 0;  // when it was started, in clock ticks since the host started
};

// nullopt: the process does not exist, or is hidden from this process (hidepid).
std::optional<ProcessStat> read_process_stat(pid_t pid);

// The PIDs of all processes that /proc shows to this process.
std::vector<pid_t> list_processes();

// The process's effective uid, which is readable even where hidepid hides the rest.
std::optional<uid_t> read_process_owner(pid_t pid);

// A pidfd. It refers to this process even after the process has exited and its PID was reused.
// Empty, with errno set, if there is no such process (ESRCH) or no free descriptor.
UniqueFd open_process(pid_t pid);

// Whether the process has exited; true for a zombie, too.
bool has_ended(const UniqueFd& handle);

// Like kill(2), but cannot reach another process that reuses the PID: 0, or -1 with errno set.
int send_signal(const UniqueFd& handle, int number);

// The value of the mount option hidepid of /proc ("invisible", "2"); empty if /proc shows the
// processes of other users.
std::string read_hidepid_option();

// The number of this process's PID namespace; 0 if it is unknown. A PID means the same process to
// two programs only if they are in the same namespace.
std::uint64_t pid_namespace();

// Whether this process is in the host's PID namespace, so that its PIDs are the host's.
bool is_in_host_pid_namespace();

// The path of the program that this process runs; empty without /proc.
std::string executable_path();

// The arguments or variables for execve(2): pointers into `texts`, and a null pointer.
std::vector<char*> exec_pointers(std::vector<std::string>& texts);

}  // namespace berth
