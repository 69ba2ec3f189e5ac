// Does what was confirmed, in a thread of its own: the harbour's lock and Redis may take a while.
#pragma once

#include <memory>
#include <optional>
#include <thread>

#include "base/event_fd.h"
#include "base/mutex.h"
#include "top/model.h"

namespace berth::top {

// One at a time.
class ActionThread {
 public:
  ActionThread() = default;
  ActionThread(const ActionThread&) = delete;
  ActionThread& operator=(const ActionThread&) = delete;
  // Waits for it: what was begun is done, or fails.
  ~ActionThread();

  bool busy() const { return thread_.joinable(); }
  // Must not be busy.
  void start(const PendingAction& action);

  // Readable when it is done; result() then tells how it went, and it is not busy any more.
  int fd() const { return done_.fd(); }
  std::optional<Notice> result();

 private:
  std::thread thread_;
  EventFd done_;
  Mutex mutex_;
  std::optional<Notice> notice_ GUARDED_BY(mutex_);
};

// Cancels or releases, and says what came of it.
Notice run_action(const PendingAction& action);

}  // namespace berth::top
