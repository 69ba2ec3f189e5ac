// Looking again when something has changed; see lookout.h.
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
      ears_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {}

// Before each look, since the directory may have been made, or made anew, since the last one. Not
// of what is opened, read or closed: looking at a bell does that, and would wake itself.
void StatusWatcher::listen() {
  std::array<char, 4096> events{};
  while (::read(ears_.get(), events.data(), events.size()) > 0) {
  }
  ::inotify_add_watch(ears_.get(), where_.path.c_str(),
                      IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ONLYDIR);
}

Result<std::vector<Status>> StatusWatcher::look() {
  looked_ = Clock::now();
  listen();
  std::optional<Error> no_driver;
  if (!probe_) {
    auto opened = open_driver(on_slow_);
    if (opened) {
      probe_ = std::move(*opened);
      probe_->interrupt_by(interrupt_, {});
    } else if (opened.error().kind == ErrorKind::no_driver) {
      no_driver = opened.error();
    } else {
      return tl::make_unexpected(opened.error());
    }
  }
  if (where_.url || where_.wrong) return observe_all(probe_.get(), where_);
  // Of this host alone there is nothing to show without a driver but why.
  if (no_driver) return tl::make_unexpected(*no_driver);
  auto here = observe(*probe_, driver_is_simulated(), where_);
  if (!here) return tl::make_unexpected(here.error());
  std::vector<Status> alone;
  alone.push_back(std::move(*here));
  return alone;
}

bool StatusWatcher::wait(std::chrono::milliseconds period, std::span<pollfd> others, bool listens) {
  // Whatever goes on in the harbour, nobody needs to see more pictures than these.
  constexpr std::chrono::milliseconds kAtMostEvery(250);
  std::vector<pollfd> watched(others.begin(), others.end());
  watched.push_back({listens ? ears_.get() : -1, POLLIN, 0});
  bool heard = false;
  for (;;) {
    const auto due = looked_ + (heard ? std::min(kAtMostEvery, period) : period);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(due - Clock::now());
    if (heard) watched.back().fd = -1;
    const int ready = ::poll(watched.data(), watched.size(),
                             static_cast<int>(std::max(left, left.zero()).count()));
    for (std::size_t i = 0; i < others.size(); ++i) others[i].revents = watched[i].revents;
    const auto spoke = [](const pollfd& one) { return one.revents != 0; };
    if (ready > 0 && std::any_of(others.begin(), others.end(), spoke)) return false;
    if (ready > 0) heard = true;
    if (ready == 0) return true;
  }
}

}  // namespace berth
