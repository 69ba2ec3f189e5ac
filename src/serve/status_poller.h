// The thread that looks: at GPUs, leases and queue, as often as it is worthwhile, and hangs up a
// picture for all who watch.
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
#include "serve/lease_counters.h"
#include "serve/load_history.h"
#include "serve/snapshot.h"
#include "serve/viewer_count.h"
#include "status/status_watcher.h"

namespace berth::serve {

class StatusPoller {
 public:
  struct Callbacks {
    std::function<void()> on_snapshot;  // there is a new one
    std::function<void()> on_history;   // leases have ended, and that is written by now
  };

  // `command_visibility`: see CommandVisibility.
  StatusPoller(SnapshotPublisher& publisher, ViewerCount& viewer_count,
               CommandVisibility command_visibility, Callbacks callbacks);

  // Once, now.
  void poll();
  // Waits until it is worthwhile to look again.
  void wait();

 private:
  using Clock = std::chrono::steady_clock;

  void render_status(const std::vector<Status>& hosts, ServeSnapshot& snapshot) const;
  void render_samples(const Result<std::vector<Status>>& hosts, ServeSnapshot& snapshot);
  void render_metrics(const Result<std::vector<Status>>& hosts, ServeSnapshot& snapshot);
  void read_history(Clock::time_point now);
  void detect_endings(const std::vector<Status>& hosts, Clock::time_point now);
  void schedule_history_update(Clock::time_point time);
  std::chrono::milliseconds poll_interval() const;

  SnapshotPublisher& publisher_;
  ViewerCount& viewer_count_;
  CommandVisibility command_visibility_;
  Callbacks callbacks_;
  StatusWatcher watcher_;
  LoadHistory load_history_;
  LeaseCounters counters_;
  std::unique_ptr<HistoryFollower>
      history_follower_;                   // of the history; null while it cannot be followed
  std::optional<TimePoint> last_success_;  // when a look last succeeded
  ServeSnapshot last_snapshot_;
  std::set<std::string> running_leases_;  // leases, with their hosts
  std::optional<Clock::time_point> history_due_;
  Clock::time_point history_announced_{};
  Clock::time_point last_poll_{};
};

}  // namespace berth::serve
