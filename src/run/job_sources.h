// Reads what the list of jobs is made of: folders, tickets, leases and history, also those of the
// other hosts of the harbour.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "harbour/location.h"
#include "run/job_list.h"

namespace berth {

// Without jobs: the viewer is this process's user, and the host this one.
JobSources make_job_sources(const HarbourLocation& where);

// JobSources::held_jobs of `jobs`. The bells say it, also those in another harbour than this one.
std::set<std::string> find_held_jobs(const std::vector<DetachedJob>& jobs);

// The indices of the host's GPUs, for those of its leases.
void add_gpu_indices(const Status& host, JobSources& sources);

struct JobListOptions {
  bool all_users = false;
  // Jobs that ended before are left out. nullopt: a detached job is listed as long as it is kept,
  // another one for a day.
  std::optional<TimePoint> since{};
  std::vector<std::string> ids{};  // only these, whenever they ended; empty: all
  // false: faster, but the reasons for waiting and the indices of some GPUs are missing.
  bool asks_driver = true;
};

// Asks the driver only if a job waits or runs. If it does not answer, the reasons for waiting are
// empty.
// ErrorKind::usage: there is no job with one of the ids.
Result<std::vector<JobInfo>> list_all_jobs(const JobListOptions& options);

}  // namespace berth
