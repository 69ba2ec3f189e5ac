// Detached jobs for the page: their list, their output, and their end.
//
// They are the jobs of the user who runs the server. access.h says which clients may see them.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "run/job_list.h"
#include "serve/http_response.h"
#include "serve/job_folder_reader.h"

namespace berth::serve {

// The list shows at most so many jobs.
constexpr std::size_t kMaxListedJobs = 200;

// The document of GET /jobs and of the event "jobs": first the jobs that run, wait and are held, in
// the order in which they were submitted; then those that ended in the last day (a week, if it is
// unknown when), the latest first. `hosts` has the status of all hosts. Reads no files, but the
// parents of processes. `hide_commands`: shows only the names of programs, as leases and tickets
// do.
std::string make_job_list(const JobFolders& folders, const std::vector<Status>& hosts,
                          TimePoint now, bool hide_commands);

// Does what `berth cancel ID` does. Takes up to the grace time, and some seconds more.
HttpResponse end_job(const std::string& id);

// The end of the output of a detached job.
HttpResponse read_job_output(const std::string& id);

}  // namespace berth::serve
