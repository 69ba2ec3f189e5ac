// What must happen before a job asks for GPUs: other jobs have ended (--after, --after-any), a time
// has come (--begin). Until then it has no ticket in the queue.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "run/detach.h"

namespace berth {

struct StartConditions {
  std::vector<std::string> after;      // ids of jobs that must succeed
  std::vector<std::string> after_any;  // ids of jobs that must end, however
  std::optional<TimePoint> begin{};
};

// Parses "2h" (from `now` on), "18:00" (the next one), "tomorrow", "tomorrow 9:00", or a date with
// or without the time of day, in local time. ErrorKind::usage.
Result<TimePoint> parse_begin_time(std::string_view text, TimePoint now);

// Adds the ids in the list "ID,ID". ErrorKind::usage: an id is malformed.
Result<void> add_job_ids(std::string_view text, std::vector<std::string>& ids);

// Whether this user has the jobs, so that a wrong id is refused at once. Errors are those of
// JobWatch::open().
Result<void> check_start_conditions(const StartConditions& conditions);

// Waits, and records why. Returns the signal by which the user ended the wait.
// ErrorKind::impossible: a job of `after` has failed.
Result<std::optional<int>> wait_for_start(const StartConditions& conditions, JobRecorder& recorder);

}  // namespace berth
