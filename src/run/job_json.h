// Jobs as JSON: the output of `berth jobs --json`. docs/json.md describes the keys.
#pragma once

#include <string>
#include <vector>

#include "run/job_list.h"

namespace berth {

std::string jobs_json(const std::vector<JobInfo>& jobs);

}  // namespace berth
