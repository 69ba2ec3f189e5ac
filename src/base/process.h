// What the kernel tells of a process: its line in /proc, and a handle that outlives its number.
#pragma once

#include <optional>
#include <string>
#include <sys/types.h>

#include "base/unique_fd.h"

namespace berth {

struct ProcessStat {
  std::string name;      // as the process, or its program, chose it: printable() before it is shown
  pid_t parent = 0;      // 0 if it lies outside this PID namespace
  bool stopped = false;  // by a signal (Ctrl-Z, SIGSTOP); not by a tracer
  bool ran_exec = true;  // false: a mere fork, still the program that its parent was
};

// Nothing if the process is gone, or hidden from us (hidepid).
std::optional<ProcessStat> read_process_stat(pid_t pid);

// The user that it runs as (its effective uid), also where the rest is hidden from us.
std::optional<uid_t> read_process_owner(pid_t pid);

// A pidfd: it means this process for ever, also when its number belongs to another one. Empty, with
// errno set, if there is no such process (ESRCH), or no descriptor is left.
UniqueFd open_process(pid_t pid);

// The process has ended, whether or not somebody has waited for it.
bool has_ended(const UniqueFd& handle);

// As kill(2), without the danger to hit another process: 0, or -1 with errno set.
int send_signal(const UniqueFd& handle, int number);

// The value of the option hidepid of the mount at /proc ("invisible", "2"); empty if other users'
// processes are shown.
std::string read_hidepid_option();

// The file of the program that we are; empty if /proc is not there.
std::string executable_path();

}  // namespace berth
