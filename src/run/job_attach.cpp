// Follows a detached job and handles the keys; see job_attach.h.
#include "run/job_attach.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fmt/format.h>
#include <unistd.h>

#include "base/process.h"
#include "base/signals.h"
#include "base/terminal.h"
#include "run/job_output.h"
#include "run/job_wait.h"

namespace berth {
namespace {

constexpr std::size_t kFirstLines = 20;

// The job's berth process passes the signal on to the whole process group of the job.
void terminate_job(const DetachedJob& started) {
  // Read again: the job may have been attached to before its process was recorded.
  const auto job = find_job(started.spec.id);
  const UniqueFd process = job ? open_job_process(*job) : UniqueFd();
  if (process && send_signal(process, SIGTERM) == 0) {
    print_message(fmt::format("job {} was asked to end (SIGTERM)", started.spec.id));
  } else if (job && job->is_alive) {
    print_message(
        fmt::format("job {} cannot be ended from here: its process is on another host or "
                    "in another container",
                    started.spec.id));
  }
}

int report_end(const std::string& id) {
  const auto job = find_job(id);
  JobOutcome outcome{std::nullopt, "its folder was removed"};
  if (job) {
    outcome = find_outcome(*job).value_or(JobOutcome{
        std::nullopt, "its berth process was killed, and processes of the job still run"});
  }
  if (!outcome.code)
    print_message(fmt::format("the exit code of job {} is unknown: {}", id, outcome.why));
  return exit_code(outcome);
}

}  // namespace

Result<int> attach_to_job(const DetachedJob& job) {
  const std::string& id = job.spec.id;
  SignalQueue signals({SIGINT, SIGQUIT, SIGTERM, SIGHUP});
  if (::isatty(STDERR_FILENO) == 1) {
    print_message(
        fmt::format("job {}: Ctrl-C detaches, and the job goes on; Ctrl-\\ ends the job", id));
  }
  const OutputOptions options{kFirstLines, true, &signals, [&](int number) {
                                if (number == SIGQUIT) terminate_job(job);
                                return number == SIGQUIT;
                              }};
  const auto stopped_by = TRY(print_job_output(job, options));
  if (!stopped_by) return report_end(id);
  if (*stopped_by != SIGINT) return 128 + *stopped_by;
  print_message(fmt::format(
      "detached from job {0}, which goes on (to follow it again: berth attach {0})", id));
  return 0;
}

}  // namespace berth
