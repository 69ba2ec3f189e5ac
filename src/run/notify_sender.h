// Sends a notification to its targets, from processes that have left the job.
#pragma once

#include <string>
#include <sys/resource.h>
#include <vector>

#include "run/notify.h"

namespace berth {

// Starts a process for each receiver, in a session of its own and without descriptors of the job,
// and returns when they have closed those. Each tries three times, for ten seconds each. A failure
// is written to stderr if that is a file, to the terminal if it is still there, and to `folder`,
// the folder of a detached job (empty: the job is not detached). `descriptors` is the limit of open
// files for the programs that send.
void send_from_own_processes(const std::vector<const Notifier::Target*>& receivers,
                             const Notification& notification, const std::string& folder,
                             const rlimit& descriptors);

}  // namespace berth
