// Reads the status, and waits for changes with inotify; see status_watcher.h.
#include "status/status_watcher.h"

#include <algorithm>
#include <array>
#include <optional>
#include <sys/inotify.h>
#include <unistd.h>
#include <utility>

#include "cluster/store/hosts.h"
#include "devices/driver.h"

namespace berth {

StatusWatcher::StatusWatcher(HarbourLocation where, std::function<void()> on_slow)
    : where_(std::move(where)),
      on_slow_(std::move(on_slow)),
      inotify_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {}

// Called before each read of the harbour, since the directory may have been created, or created
// anew, since the last one. Does not watch opening, reading and closing: reading the harbour opens
// bells, and the watcher would wake itself.
void StatusWatcher::rearm_harbour_watch() {
  std::array<char, 4096> events{};
  while (::read(inotify_.get(), events.data(), events.size()) > 0) {
  }
  ::inotify_add_watch(inotify_.get(), where_.path.c_str(),
                      IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ONLYDIR);
}

Result<std::vector<Status>> StatusWatcher::observe() {
  last_observed_ = Clock::now();
  rearm_harbour_watch();
  std::optional<Error> no_driver;
  if (!probe_) {
    auto opened = open_driver(on_slow_);
    if (opened) {
      probe_ = std::move(*opened);
      probe_->set_interrupt(interrupt_, {});
    } else if (opened.error().kind == ErrorKind::no_driver) {
      no_driver = opened.error();
    } else {
      return tl::make_unexpected(opened.error());
    }
  }
  if (where_.url || where_.configuration_error) return observe_all(probe_.get(), where_);
  // A single host without a driver has no status.
  if (no_driver) return tl::make_unexpected(*no_driver);
  std::vector<Status> hosts;
  hosts.push_back(TRY(observe_host(*probe_, is_driver_simulated(), where_)));
  return hosts;
}

bool StatusWatcher::wait(std::chrono::milliseconds period, std::span<pollfd> descriptors,
                         bool watch_harbour) {
  // Viewers need no more snapshots than this, however often the harbour changes.
  constexpr std::chrono::milliseconds kMinInterval(250);
  std::vector<pollfd> watched(descriptors.begin(), descriptors.end());
  watched.push_back({watch_harbour ? inotify_.get() : -1, POLLIN, 0});
  bool changed = false;
  for (;;) {
    const auto due = last_observed_ + (changed ? std::min(kMinInterval, period) : period);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(due - Clock::now());
    if (changed) watched.back().fd = -1;
    const int ready = ::poll(watched.data(), watched.size(),
                             static_cast<int>(std::max(left, left.zero()).count()));
    for (std::size_t i = 0; i < descriptors.size(); ++i)
      descriptors[i].revents = watched[i].revents;
    const auto is_ready = [](const pollfd& one) { return one.revents != 0; };
    if (ready > 0 && std::any_of(descriptors.begin(), descriptors.end(), is_ready)) return false;
    if (ready > 0) changed = true;
    if (ready == 0) return true;
  }
}

}  // namespace berth
