// The `berth run` process of one line: in its own process group, with its output in a log.
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

// The process state from before the batch changed it. Jobs start with it, as if they were started
// by the user's shell.
struct InheritedState {
  rlimit descriptors{};
  const sigset_t* mask = nullptr;
  void (*sigpipe_handler)(int) = nullptr;
};

// The process gets SIGTERM when this process ends, even by SIGKILL (PR_SET_PDEATHSIG): a batch that
// was killed leaves no tickets behind, and its jobs get SIGTERM, too.
class RunProcess {
 public:
  // Runs this program as `berth run --event-fd=N ARGUMENTS`; `arguments` are flags and the command.
  // The output is appended to `log`. ErrorKind::io if the system cannot start another process.
  static Result<RunProcess> start(const std::vector<std::string>& arguments, const UniqueFd& log,
                                  const InheritedState& inherited);

  // Readable when there are events, or when the process has ended.
  int fd() const { return events_.get(); }
  // The events since the last call. Does not block.
  std::vector<RunEvent> read_events();
  // The status of waitpid(), once the process has ended; nullopt while it runs.
  std::optional<int> poll_exit();
  // Sends SIGTERM: `berth run` leaves the queue, or passes the signal on to the whole job.
  void terminate() const;
  // Sends SIGKILL to the process group: `berth run`, and the job's processes that are still in it.
  void kill() const;

 private:
  RunProcess(pid_t pid, UniqueFd events_read_end)
      : pid_(pid), events_(std::move(events_read_end)) {}

  pid_t pid_;
  UniqueFd events_;
  RunEventParser parser_;
};

}  // namespace berth::batch
