// The output of `berth jobs` as a table.
#pragma once

#include <string>
#include <vector>

#include "base/terminal.h"
#include "run/job_list.h"

namespace berth {

struct JobsTableOptions {
  TimePoint now;
  bool has_users = false;  // a column for the user is needed
  std::string host{};      // this one: a job on another needs a column for the host
};

// A line for each job, and below it why it waits or why its exit code is unknown. Escaped and
// shortened for `terminal`.
std::string jobs_text(const std::vector<JobInfo>& jobs, const Terminal& terminal,
                      const JobsTableOptions& options);

}  // namespace berth
