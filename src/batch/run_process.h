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
#include "batch/run_event_parser.h"

namespace berth::batch {

// What this process must give back to its children: they start as if it were not there.
struct InheritedState {
  rlimit descriptors{};
  const sigset_t* mask = nullptr;
  void (*sigpipe_handler)(int) = nullptr;  // what SIGPIPE did
};

// It ends with this process, however that ends: a batch that was killed leaves no tickets, and its
// jobs are asked to end (SIGTERM).
class RunProcess {
 public:
  // Runs this same program with `arguments`, its flags for `run` and the command; --event-fd is
  // added. The output is appended to `log`. An Error (ErrorKind::usage) if the system has no room
  // for it.
  static Result<RunProcess> start(const std::vector<std::string>& arguments, const UniqueFd& log,
                                  const InheritedState& inherited);

  // Readable when it has something to tell.
  int fd() const { return events_.get(); }
  // What it has told since the last time; never waits.
  std::vector<RunEvent> read_events();
  // How it has ended, as waitpid() gives it; nothing as long as it runs.
  std::optional<int> poll_exit();
  // It leaves the queue, or passes the signal on to all of the job.
  void terminate() const;
  // It and all of the job's processes that have not left its group, at once.
  void kill() const;

 private:
  RunProcess(pid_t pid, UniqueFd events_read_end)
      : pid_(pid), events_(std::move(events_read_end)) {}

  pid_t pid_;
  UniqueFd events_;
  RunEventParser parser_;
};

}  // namespace berth::batch
