// The thread that runs a StatusWatcher; see status_thread.h.
#include "top/status_thread.h"

#include <array>
#include <exception>
#include <poll.h>
#include <utility>

#include "base/event_fd.h"
#include "base/mutex.h"
#include "status/status_watcher.h"
#include "top/host_usage.h"

namespace berth::top {

struct StatusThread::Shared {
  HarbourLocation where;
  std::chrono::milliseconds period;
  EventFd snapshot_ready;
  EventFd stop_requested;
  EventFd stopped;
  Mutex mutex;
  std::shared_ptr<const TopSnapshot> snapshot GUARDED_BY(mutex) =
      std::make_shared<const TopSnapshot>();

  std::shared_ptr<const TopSnapshot> current() {
    const MutexLock lock(mutex);
    return snapshot;
  }
  void publish(TopSnapshot next) {
    {
      const MutexLock lock(mutex);
      snapshot = std::make_shared<const TopSnapshot>(std::move(next));
    }
    snapshot_ready.notify();
  }
};

StatusThread::StatusThread(HarbourLocation where, std::chrono::milliseconds period)
    : shared_(std::make_shared<Shared>()) {
  shared_->where = std::move(where);
  shared_->period = period;
  thread_ = std::thread(run, shared_);
}

StatusThread::~StatusThread() {
  if (thread_.joinable()) stop(std::chrono::milliseconds(0));
}

int StatusThread::fd() const {
  return shared_->snapshot_ready.fd();
}

std::shared_ptr<const TopSnapshot> StatusThread::latest() {
  shared_->snapshot_ready.clear();
  return shared_->current();
}

bool StatusThread::stop(std::chrono::milliseconds timeout) {
  shared_->stop_requested.notify();
  pollfd stopped{shared_->stopped.fd(), POLLIN, 0};
  const bool ended = ::poll(&stopped, 1, static_cast<int>(timeout.count())) > 0;
  if (ended) {
    thread_.join();
  } else {
    thread_.detach();
  }
  return ended;
}

void StatusThread::run(const std::shared_ptr<Shared>& shared) {
  try {
    const auto on_slow = [&] {
      TopSnapshot waiting = *shared->current();
      waiting.driver_is_slow = true;
      shared->publish(std::move(waiting));
    };
    StatusWatcher watcher(shared->where, on_slow);
    watcher.set_interrupt(shared->stop_requested.fd());
    HostUsageReader usage;
    std::array<pollfd, 1> stop_requested{{{shared->stop_requested.fd(), POLLIN, 0}}};
    do {
      auto hosts = watcher.observe();
      TopSnapshot next;
      if (hosts) {
        next.hosts = std::move(*hosts);
        next.last_success = std::chrono::system_clock::now();
      } else {
        next = *shared->current();
        next.problem = hosts.error().message;
        next.driver_is_slow = false;
      }
      next.usage = usage.read();
      shared->publish(std::move(next));
    } while (watcher.wait(shared->period, stop_requested));
  } catch (const std::exception& problem) {
    TopSnapshot current = *shared->current();
    current.problem = std::string("internal error: ") + problem.what() + "; please report it";
    shared->publish(std::move(current));
  }
  shared->stopped.notify();
}

}  // namespace berth::top
