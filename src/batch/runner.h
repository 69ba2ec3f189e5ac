// Runs the lines of a batch, each in its own `berth run` process.
#pragma once

#include <chrono>
#include <csignal>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/signals.h"
#include "batch/joblog.h"
#include "batch/line_order.h"
#include "batch/lines.h"
#include "batch/log_folder.h"
#include "batch/progress_display.h"

namespace berth::batch {

struct BatchPlan {
  std::vector<BatchLine> lines;
  std::vector<std::string> types;      // job type of each line
  std::vector<std::size_t> to_run;     // indices of lines; the others succeeded in an earlier batch
  std::vector<std::string> run_flags;  // for each `berth run`
  std::string label;  // the label of a job is this and its number; empty: run_flags has the label
  std::shared_ptr<const LogFolder> logs;
  std::string resume_flags{};  // with which the same command continues the batch
  bool replace_logs = true;    // replace existing logs instead of appending
  std::size_t jobs =
      std::numeric_limits<std::size_t>::max();  // processes at once, also waiting ones
  std::size_t window = 1;                       // of those, how many may wait
  unsigned retries = 0;
  std::optional<std::chrono::nanoseconds> limit{};  // of each run, from the grant on
  bool keep_going = false;
  // Returns those of `lines` that would be granted GPUs at once: see StartableLines. Empty
  // function: all lines wait in the queue, in order.
  std::function<std::vector<std::size_t>(const std::vector<std::size_t>& lines)> find_startable{};
  // The run time of a type's profile, in seconds.
  std::function<std::optional<double>(const std::string& type)> known_seconds{};
  // Called when a line was granted a lease on GPUs ("0,1").
  std::function<void(const std::string& lease, const std::string& gpus)> on_granted{};
  // Called when something has changed, also while nothing shows the progress.
  std::function<void(const Progress& progress)> on_progress{};
};

struct FailedLine {
  const BatchLine* line;
  LineResult result;
  std::size_t log_begin;  // offset of the last attempt in the log, in bytes
};

struct BatchResult {
  std::size_t succeeded = 0;  // without those of an earlier batch
  std::vector<FailedLine> failed{};
  std::size_t interrupted = 0;  // started, and stopped before they ended
  std::size_t not_started = 0;
  std::chrono::nanoseconds elapsed{};
  std::chrono::nanoseconds gpu_time{};  // sum of run time times GPUs, over all attempts
  int signal = 0;                       // the signal by which the user stopped the batch
  std::optional<Error> error{};         // why the batch could not go on
};

// The signals that run_batch() handles: requests to stop, the end of a child, and changes of the
// terminal.
constexpr std::initializer_list<int> kBatchSignals{SIGINT,  SIGTERM, SIGHUP,
                                                   SIGCHLD, SIGCONT, SIGWINCH};

// Runs the lines of `order`, and returns when no job runs any more. `signals` must be a queue of
// kBatchSignals. `plan` must outlive the result.
BatchResult run_batch(const BatchPlan& plan, LineOrder order, Joblog& joblog,
                      ProgressDisplay& display, SignalQueue& signals);

}  // namespace berth::batch
