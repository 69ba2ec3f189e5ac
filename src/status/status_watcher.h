// Reads the status of all hosts repeatedly, for live views.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <poll.h>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "devices/probe.h"
#include "harbour/location.h"
#include "status/status.h"

namespace berth {

// For use by a single thread. That thread must not end before the watcher is destroyed: the helper
// process that asks the driver ends with the thread.
class StatusWatcher {
 public:
  // observe() calls `on_slow` if the driver takes long to answer.
  explicit StatusWatcher(HarbourLocation where = harbour_location(),
                         std::function<void()> on_slow = {});

  // observe() fails early if this descriptor becomes readable while the driver is asked. Set it
  // before the first observe().
  void set_interrupt(int descriptor) { interrupt_ = descriptor; }

  // The status of all hosts of the harbour, sorted by name; see observe_all(). Errors are those of
  // the harbour and of the driver; with several hosts, a missing driver is not an error. The caller
  // may call it again after an error.
  Result<std::vector<Status>> observe();

  // Waits until the status may have changed: until `period` after the last observe() began, or,
  // with `watch_harbour`, until a file in this host's harbour was created, deleted or renamed.
  // False if one of `descriptors` is ready before that; its `revents` are set.
  //
  // The end of a process that is killed changes no file: it is seen after `period`.
  bool wait(std::chrono::milliseconds period, std::span<pollfd> descriptors = {},
            bool watch_harbour = true);

 private:
  using Clock = std::chrono::steady_clock;

  void rearm_harbour_watch();

  HarbourLocation where_;
  std::function<void()> on_slow_;
  std::unique_ptr<Probe> probe_;
  int interrupt_ = -1;
  UniqueFd inotify_;
  Clock::time_point last_observed_{};
};

}  // namespace berth
