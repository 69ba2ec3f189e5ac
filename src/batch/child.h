// One `berth run` of a batch, as a process: in a group of its own, with its output in a file.
#pragma once

#include <optional>
#include <string>
#include <sys/resource.h>
#include <sys/types.h>
#include <vector>

#include "base/result.h"
#include "base/signals.h"
#include "base/unique_fd.h"
#include "batch/run_events.h"

namespace berth::batch {

// What this process must give back to its children: they start as if it were not there.
struct Inherited {
  rlimit descriptors{};
  const sigset_t* mask = nullptr;
  void (*on_pipe)(int) = nullptr;  // what SIGPIPE did
};

// It ends with this process, however that ends: a batch that was killed leaves no tickets, and its
// jobs are asked to end (SIGTERM).
class Child {
 public:
  // Runs this same program with `words`, its flags for `run` and the command; --tell is added. The
  // output is appended to `log`. An Error (ErrorKind::usage) if the system has no room for it.
  static Result<Child> start(const std::vector<std::string>& words, const UniqueFd& log,
                             const Inherited& inherited);

  // Readable when it has something to tell.
  int fd() const { return told_.get(); }
  // What it has told since the last time; never waits.
  std::vector<RunEvent> events();
  // How it has ended, as waitpid() gives it; nothing as long as it runs.
  std::optional<int> end();
  // It leaves the queue, or passes the signal on to all of the job.
  void stop() const;
  // It and all of the job's processes that have not left its group, at once.
  void kill() const;

 private:
  Child(pid_t pid, UniqueFd told) : pid_(pid), told_(std::move(told)) {}

  pid_t pid_;
  UniqueFd told_;
  RunEvents parser_;
};

}  // namespace berth::batch
