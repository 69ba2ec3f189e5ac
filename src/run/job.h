// The job of `berth run`: how it is found, started on its GPUs, and supervised until it ends.
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
  std::string program;  // the file of the command, as find_program() has found it; or empty
  std::vector<std::pair<std::string, std::string>>
      environment;       // added to this process's own, and wins over it
  rlimit descriptors{};  // the job's limit of open files (this process has raised its own)
};

// Exit codes of `berth run` for a program that cannot be run, as of a shell.
constexpr int kExitNotRunnable = 126;
constexpr int kExitNotFound = 127;

// Why a program cannot be run: the exit code (one of the above) and the message for the user.
struct ProgramError {
  int code;
  std::string message;
};

// The file that execvp() would run: `name` if it has a slash, else the first match in the PATH
// whose interpreter, if it is a script, exists.
std::variant<std::string, ProgramError> find_program(const std::string& name);

// nullopt if the program can be run. Callers check this before a job waits, perhaps for hours.
std::optional<ProgramError> check_program(const std::string& name);

// Starts the job in this process's group, so that signals of the terminal (Ctrl-C, Ctrl-Z) reach it
// as if berth were not there. The job inherits the lease's bell.
std::variant<pid_t, ProgramError> start_job(const Job& job, const Lease& lease,
                                            const SignalQueue& signals);

struct JobHooks {
  std::function<void(const std::string&)> on_notice;  // a message for the user
  std::function<void()> on_long_run;  // called once, when the job has run for a second
  // Does what is due, such as a sample of what the job uses; returns the time until the next call.
  std::function<std::chrono::milliseconds()> work_if_due;
  // berth and the job have a process group of their own: supervise() passes on to the whole group
  // what another process sends to berth, as a terminal would. (The job may be a shell that waits
  // for a pipeline: it would not pass the signal on.)
  bool whole_group = false;
  // A pipe or socket whose other end belongs to the process that started berth; -1: none. When that
  // end closes, supervise() sends SIGHUP to the group, as a terminal does that is closed. The
  // process that started berth forwards the signals of its keyboard to berth alone; supervise()
  // passes those on to the whole group, too.
  int lifeline = -1;
};

struct JobEnd {
  int status = 0;  // as from waitpid()
  bool interrupted =
      false;  // a signal (INT, TERM, HUP, QUIT) or the end of the lifeline asked it to end
};

// For a child that another caller has reaped, so that its status is lost: exit code 1, a failure.
constexpr int kUnknownStatus = 1 << 8;

// Waits for the job's end. Passes on signals that were sent to berth alone, maintains the lease's
// heartbeat, and restores the lease if its files are deleted.
JobEnd supervise(pid_t job, Lease& lease, SignalQueue& signals, const JobHooks& hooks);

// The exit code of berth for a status of waitpid(): the job's own, or 128+N for a signal.
int exit_code(int status);

}  // namespace berth
