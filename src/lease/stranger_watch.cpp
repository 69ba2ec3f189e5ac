// Opens the processes that block a client; see stranger_watch.h.
#include "lease/stranger_watch.h"

#include <algorithm>
#include <sys/types.h>
#include <utility>

#include "base/process.h"

namespace berth {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// In the place of kDriverPollInterval where a ticket before this one asks the driver as well.
constexpr seconds kBackupDriverPollInterval(8);

}  // namespace

std::vector<UniqueFd> StrangerWatch::open_handles(const Decision& decision) {
  driver_poll_interval_.reset();
  std::vector<UniqueFd> handles;
  // Leases that cannot be watched: decide again at the same interval.
  if (decision.has_unwatched_leases) driver_poll_interval_ = kDriverPollInterval;
  const bool see_pids = is_in_host_pid_namespace();
  for (const Blocker& blocker : decision.wait.blockers) {
    const bool is_first_blocked =
        decision.is_in_front || decision.watched_gpus.contains(blocker.uuid);
    if (!is_first_blocked && !decision.watches_all_leases) continue;
    const milliseconds interval(is_first_blocked ? kDriverPollInterval : kBackupDriverPollInterval);
    const auto poll_driver = [&] {
      driver_poll_interval_ = std::min(driver_poll_interval_.value_or(interval), interval);
    };
    if (blocker.reason == BlockReason::busy) poll_driver();
    for (const GpuWithLeases& host_gpu : decision.host_view.gpus) {
      if (host_gpu.gpu.uuid != blocker.uuid) continue;
      // 'berth undrain' rings the queue. A change of health is visible only in the driver.
      if (blocker.reason == BlockReason::unusable && !host_gpu.drain) poll_driver();
      if (blocker.reason != BlockReason::strangers && blocker.reason != BlockReason::memory) {
        continue;
      }
      if (host_gpu.unexplained || host_gpu.gpu.memory_is_hosts) poll_driver();
      for (const AttributedProcess& one : host_gpu.processes) {
        if (!one.is_stranger()) continue;
        UniqueFd handle;
        if (see_pids) handle = open_process(static_cast<pid_t>(one.process.pid));
        // A process that has ended and is not reaped yet would wake this client without end.
        if (handle && !has_ended(handle)) {
          handles.push_back(std::move(handle));
          continue;
        }
        poll_driver();
        // The process ended between the snapshot and now: decide again at once, but only once for
        // each process.
        const bool just_ended =
            is_first_blocked && see_pids && ended_strangers_.insert(one.process.pid).second;
        if (just_ended) driver_poll_interval_ = milliseconds(0);
      }
    }
  }
  return handles;
}

}  // namespace berth
