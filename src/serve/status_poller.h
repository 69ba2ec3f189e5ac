// Polls GPUs, leases and queue, and publishes a snapshot for all clients.
//
// The cost does not grow with the number of viewers: only this thread calls the driver and reads
// the harbour, every second while there are viewers, and otherwise every five seconds.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "archive/follow_history.h"
#include "base/json.h"
#include "serve/gpu_load_samples.h"
#include "serve/job_folder_reader.h"
#include "serve/lease_counters.h"
#include "serve/snapshot.h"
#include "serve/viewer_activity.h"
#include "status/status_watcher.h"

namespace berth::serve {

// Used by one thread. The publisher, the viewer activity and the job reader must outlive it.
class StatusPoller {
 public:
  // Called in the thread of poll().
  struct Callbacks {
    std::function<void()> on_snapshot;  // a new snapshot was published
    std::function<void()> on_history;   // leases have ended, and the history has their lines
  };

  // `job_reader` is null if no client may see the user's jobs.
  StatusPoller(SnapshotPublisher& publisher, ViewerActivity& viewer_activity,
               CommandVisibility command_visibility, Callbacks callbacks,
               JobFolderReader* job_reader = nullptr);

  // Polls once and publishes a snapshot, also if the poll fails: it then has the old data and the
  // problem.
  void poll();
  // Waits until the next poll is due.
  void wait();

 private:
  using Clock = std::chrono::steady_clock;

  void render_status(const std::vector<Status>& hosts, ServeSnapshot& snapshot) const;
  void render_jobs(const std::vector<Status>& hosts, ServeSnapshot& snapshot);
  void render_samples(const Result<std::vector<Status>>& hosts, ServeSnapshot& snapshot);
  void render_metrics(const Result<std::vector<Status>>& hosts, ServeSnapshot& snapshot);
  void save_samples(Clock::time_point now);
  void read_history(Clock::time_point now);
  void detect_endings(const std::vector<Status>& hosts, Clock::time_point now);
  void schedule_history_update(Clock::time_point time);
  std::chrono::milliseconds poll_interval() const;

  SnapshotPublisher& publisher_;
  ViewerActivity& viewer_activity_;
  CommandVisibility command_visibility_;
  Callbacks callbacks_;
  JobFolderReader* job_reader_;
  std::set<std::string> own_clients_;  // the ids of the user's leases and tickets, of the last poll
  StatusWatcher watcher_;
  GpuLoadSamples gpu_load_samples_;
  std::optional<Clock::time_point> samples_saved_;
  LeaseCounters counters_;
  std::unique_ptr<HistoryFollower> history_follower_;  // null while the history cannot be read
  std::optional<TimePoint> last_success_;              // time of the last poll that succeeded
  ServeSnapshot last_snapshot_;
  std::set<std::string> running_leases_;          // "HOST/ID", of the last poll
  std::optional<Clock::time_point> history_due_;  // when to announce that leases have ended
  Clock::time_point history_announced_{};
  Clock::time_point last_poll_{};
};

}  // namespace berth::serve
