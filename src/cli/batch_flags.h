// The flags of `berth batch`, and what the user has asked for by them.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "batch/command_source.h"
#include "cli/flags.h"
#include "lease/request_options.h"
#include "run/notify.h"
#include "run/start_conditions.h"

namespace berth {

struct BatchCommandOptions {
  std::shared_ptr<RequestOptions> request;
  batch::CommandSource source;
  std::vector<std::string> run_flags;
  std::optional<unsigned> jobs;
  unsigned per_gpu = 0;  // 0: not given
  unsigned retries = 0;
  std::optional<std::chrono::nanoseconds> limit;
  std::optional<std::chrono::nanoseconds> old_limit;  // by its old name --timeout
  std::string logs;
  std::string joblog;
  bool keep_going = false;
  bool resume = false;
  bool restart = false;
  bool dry_run = false;
  bool replaces_braces = false;  // -I {}
  bool in_order = false;
  bool no_wait = false;
  bool detach = false;
  StartConditions start;
  NotifyOptions notify;
  bool notify_lines = false;
};

// Declares the flags, the arguments and the footer on `command`. Parsing fills in the result.
std::shared_ptr<BatchCommandOptions> add_batch_flags(Flags& command);

}  // namespace berth
