// The thread that owns the lookout; see watcher.h.
#include "top/status_thread.h"

#include <array>
#include <exception>
#include <poll.h>
#include <utility>

#include "base/event_fd.h"
#include "base/mutex.h"
#include "status/status_watcher.h"

namespace berth::top {

struct Watcher::Shared {
  HarbourLocation where;
  std::chrono::milliseconds period;
  EventFd news;
  EventFd leave;
  EventFd left;
  Mutex mutex;
  std::shared_ptr<const TopSnapshot> picture GUARDED_BY(mutex) = std::make_shared<const TopSnapshot>();

  std::shared_ptr<const TopSnapshot> last() {
    const MutexLock lock(mutex);
    return picture;
  }
  void publish(TopSnapshot next) {
    {
      const MutexLock lock(mutex);
      picture = std::make_shared<const TopSnapshot>(std::move(next));
    }
    news();
  }
};

Watcher::Watcher(HarbourLocation where, std::chrono::milliseconds period)
    : shared_(std::make_shared<Shared>()) {
  shared_->where = std::move(where);
  shared_->period = period;
  thread_ = std::thread(work, shared_);
}

Watcher::~Watcher() {
  if (thread_.joinable()) end(std::chrono::milliseconds(0));
}

int Watcher::fd() const {
  return shared_->news.fd();
}

std::shared_ptr<const TopSnapshot> Watcher::news() {
  shared_->news.clear();
  return shared_->last();
}

bool Watcher::end(std::chrono::milliseconds patience) {
  shared_->leave();
  pollfd left{shared_->left.fd(), POLLIN, 0};
  const bool ended = ::poll(&left, 1, static_cast<int>(patience.count())) > 0;
  if (ended) {
    thread_.join();
  } else {
    thread_.detach();
  }
  return ended;
}

void Watcher::work(const std::shared_ptr<Shared>& shared) {
  try {
    const auto on_slow = [&] {
      TopSnapshot waiting = *shared->last();
      waiting.slow = true;
      shared->publish(std::move(waiting));
    };
    StatusWatcher lookout(shared->where, on_slow);
    lookout.interrupt_by(shared->leave.fd());
    std::array<pollfd, 1> leave{{{shared->leave.fd(), POLLIN, 0}}};
    do {
      auto hosts = lookout.look();
      TopSnapshot next;
      if (hosts) {
        next.hosts = std::move(*hosts);
        next.seen = std::chrono::system_clock::now();
      } else {
        next = *shared->last();
        next.problem = hosts.error().message;
        next.slow = false;
      }
      shared->publish(std::move(next));
    } while (lookout.wait(shared->period, leave));
  } catch (const std::exception& problem) {
    TopSnapshot last = *shared->last();
    last.problem = std::string("internal error: ") + problem.what() + "; please report it";
    shared->publish(std::move(last));
  }
  shared->left();
}

}  // namespace berth::top
