// Jobs as JSON: the output of `berth jobs --json`. docs/json.md describes the keys.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "run/job_list.h"

namespace berth {

std::string jobs_json(const std::vector<JobInfo>& jobs);
// A part of the jobs, on one line and without a newline; "jobs_length" is `total`.
std::string partial_jobs_json(const std::vector<JobInfo>& jobs, std::size_t total);

}  // namespace berth
