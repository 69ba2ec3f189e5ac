// Runs the lines of a batch, each by a `berth run` of its own.
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
  std::vector<std::string> types;      // of each line
  std::vector<std::size_t> to_run;     // of the lines; the others have succeeded before
  std::vector<std::string> run_flags;  // for each `berth run`
  std::string label;                   // of each, followed by its number; empty: it has one
  std::shared_ptr<const LogFolder> logs;
  bool replace_logs = true;  // logs that are there already are replaced
  std::size_t jobs = std::numeric_limits<std::size_t>::max();  // at once, with those that wait
  std::size_t window = 1;                                      // how many may wait
  unsigned retries = 0;
  std::optional<std::chrono::nanoseconds> timeout{};  // of each run
  bool keep_going = false;
  // Of lines of known needs, those that would be granted GPUs at once; empty: they all take their
  // turns in the queue.
  std::function<std::vector<std::size_t>(const std::vector<std::size_t>& lines)> find_startable{};
  // What was learned of a type's run time, in seconds.
  std::function<std::optional<double>(const std::string& type)> known_seconds{};
};

struct FailedLine {
  const BatchLine* line;
  LineResult result;
  std::size_t log_begin;  // where in the log the last attempt begins
};

struct BatchResult {
  std::size_t succeeded = 0;  // now, not earlier
  std::vector<FailedLine> failed{};
  std::size_t not_run = 0;  // or not to their end
  std::chrono::nanoseconds elapsed{};
  std::chrono::nanoseconds gpu_time{};  // of every attempt, times its GPUs
  int signal = 0;                       // by which the user ended it
  std::optional<Error> error{};         // what kept it from going on
};

// By these signals the user ends a batch, and it learns of its children and its terminal.
constexpr std::initializer_list<int> kBatchSignals{SIGINT,  SIGTERM, SIGHUP,
                                                   SIGCHLD, SIGCONT, SIGWINCH};

// `order` holds the lines to be run; `signals` are kBatchSignals. Comes back when nothing runs any
// more. `plan` must outlive the result.
BatchResult run_batch(const BatchPlan& plan, LineOrder order, Joblog& joblog,
                      ProgressDisplay& display, SignalQueue& signals);

}  // namespace berth::batch
