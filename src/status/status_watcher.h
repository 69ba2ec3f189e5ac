// Looks at GPUs, leases and queue again and again, for what shows them live.
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

// For one thread, which must live as long: the helper that asks the driver ends with it.
class StatusWatcher {
 public:
  // `on_slow` is called when the driver takes long.
  explicit StatusWatcher(HarbourLocation where = harbour_location(),
                         std::function<void()> on_slow = {});

  // A look ends early, with an error, once this descriptor can be read while the driver is asked.
  void set_interrupt(int descriptor) { interrupt_ = descriptor; }

  // Every host of the harbour, by name; see observe_all(). Errors are the driver's, where there is
  // no other host to show, and the harbour's. One that fails can be tried again.
  Result<std::vector<Status>> observe();

  // Waits until it is worthwhile to look again: `period` after the last look began, or, for who
  // `watch_harbour`, once a file of this host's harbour came, went or was renamed. False if one of
  // `descriptors` is ready before that, and its `revents` say which.
  //
  // Who dies says nothing: that is seen after `period`, at the latest.
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
