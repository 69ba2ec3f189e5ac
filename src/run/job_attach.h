// Shows the output of a detached job until it ends (`berth attach`); keys detach from it or end it.
#pragma once

#include "base/result.h"
#include "run/job_folder.h"

namespace berth {

// Prints the last lines and then what the job writes. Ctrl-C (SIGINT) detaches: the result is 0,
// and the job goes on. Ctrl-\ (SIGQUIT) sends SIGTERM to the job. Otherwise the result is the exit
// code of the job, or 128+N if signal N ended the wait.
Result<int> attach_to_job(const DetachedJob& job);

}  // namespace berth
