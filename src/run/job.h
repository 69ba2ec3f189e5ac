// The job of `berth run`: started on its GPUs, with the terminal, the signals and the lease.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <sys/resource.h>
#include <sys/types.h>
#include <utility>
#include <variant>
#include <vector>

#include "base/signals.h"
#include "lease/lease.h"

namespace berth {

struct Job {
  std::vector<std::string> command;
  std::vector<std::pair<std::string, std::string>> environment;  // added to this process's own
  rlimit descriptors{};  // the limit of open files that it starts with
};

// Why a program cannot be run: the exit code (126 or 127) and the complaint.
struct ProgramError {
  int code;
  std::string message;
};

// The file that execvp() would run: `name` if it has a slash, else the first in the PATH.
std::variant<std::string, ProgramError> find_program(const std::string& name);

// Nothing if there is such a program. Checked before a job waits, perhaps for hours.
std::optional<ProgramError> check_program(const std::string& name);

// Starts the job in this process's group, so that the terminal's signals (Ctrl-C, Ctrl-Z) reach it
// as if berth were not there. It inherits the bell.
std::variant<pid_t, ProgramError> start_job(const Job& job, const Lease& lease,
                                            const SignalQueue& signals);

struct JobHooks {
  std::function<void(const std::string&)> on_notice;  // what the user should hear
  std::function<void()> on_long_run;                  // once, when it has run for a second
  // Looks at what the job uses, if it is time to; gives how long until the next time.
  std::function<std::chrono::milliseconds()> sample_if_due;
  // berth and the job have a process group of their own: what is sent to berth is passed on to all
  // of it, as a terminal would. A shell that waits for a pipeline would pass nothing on.
  bool whole_group = false;
  // A pipe or socket whose other end is who has started us: when that is gone, our group is told by
  // SIGHUP, as by a terminal that is closed. What a keyboard sends there, it sends on to us alone:
  // that is for the group, too.
  int lifeline = -1;
};

struct JobEnd {
  int status = 0;            // as waitpid() gives it
  bool interrupted = false;  // somebody asked it to end: INT, TERM, HUP or QUIT
};

// Of a child that is gone and whose end nobody learned: as if it had failed (exit code 1).
constexpr int kUnknownStatus = 1 << 8;

// Waits for the job's end, passes on what is sent to berth alone, and puts the lease back if
// somebody deletes it.
JobEnd supervise(pid_t job, Lease& lease, SignalQueue& signals, const JobHooks& hooks);

// The exit code that says the same: the job's, or 128+N for a signal.
int exit_code(int status);

}  // namespace berth
