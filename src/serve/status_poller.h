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

class Looker {
 public:
  struct Tells {
    std::function<void()> picture;  // there is a new one
    std::function<void()> history;  // leases have ended, and that is written by now
  };

  // `commands_of`: see CommandsOf.
  Looker(PictureBoard& board, Audience& audience, CommandsOf commands_of, Tells tells);

  // Once, now.
  void look();
  // Waits until it is worthwhile to look again.
  void wait();

 private:
  using Clock = std::chrono::steady_clock;

  void draw(const std::vector<Status>& hosts, Picture& picture) const;
  void draw_samples(const Result<std::vector<Status>>& hosts, Picture& picture);
  void draw_metrics(const Result<std::vector<Status>>& hosts, Picture& picture);
  void read_news(Clock::time_point now);
  void note_endings(const std::vector<Status>& hosts, Clock::time_point now);
  void tell_history_by(Clock::time_point time);
  std::chrono::milliseconds period() const;

  PictureBoard& board_;
  Audience& audience_;
  CommandsOf commands_of_;
  Tells tells_;
  Lookout lookout_;
  Samples samples_;
  Tally tally_;
  std::unique_ptr<HistoryFollower> news_;  // of the history; null while it cannot be followed
  std::optional<TimePoint> seen_;          // when a look last succeeded
  Picture last_;
  std::set<std::string> running_;  // leases, with their hosts
  std::optional<Clock::time_point> history_due_;
  Clock::time_point history_told_{};
  Clock::time_point looked_{};
};

}  // namespace berth
