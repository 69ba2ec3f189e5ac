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

namespace berth {

class StatusPoller {
 public:
  struct Callbacks {
    std::function<void()> picture;  // there is a new one
    std::function<void()> history;  // leases have ended, and that is written by now
  };

  // `commands_of`: see CommandVisibility.
  StatusPoller(SnapshotPublisher& board, ViewerCount& audience, CommandVisibility commands_of, Callbacks tells);

  // Once, now.
  void look();
  // Waits until it is worthwhile to look again.
  void wait();

 private:
  using Clock = std::chrono::steady_clock;

  void draw(const std::vector<Status>& hosts, ServeSnapshot& picture) const;
  void draw_samples(const Result<std::vector<Status>>& hosts, ServeSnapshot& picture);
  void draw_metrics(const Result<std::vector<Status>>& hosts, ServeSnapshot& picture);
  void read_news(Clock::time_point now);
  void note_endings(const std::vector<Status>& hosts, Clock::time_point now);
  void tell_history_by(Clock::time_point time);
  std::chrono::milliseconds period() const;

  SnapshotPublisher& board_;
  ViewerCount& audience_;
  CommandVisibility commands_of_;
  Callbacks tells_;
  StatusWatcher lookout_;
  Samples samples_;
  LeaseCounters tally_;
  std::unique_ptr<HistoryFollower> news_;  // of the history; null while it cannot be followed
  std::optional<TimePoint> seen_;          // when a look last succeeded
  ServeSnapshot last_;
  std::set<std::string> running_;  // leases, with their hosts
  std::optional<Clock::time_point> history_due_;
  Clock::time_point history_told_{};
  Clock::time_point looked_{};
};

}  // namespace berth
