// Runs a confirmed action (cancel or release) in a thread, because the harbour may be slow.
#pragma once

#include <memory>
#include <optional>
#include <thread>

#include "base/event_fd.h"
#include "base/mutex.h"
#include "top/model.h"

namespace berth::top {

// Runs one action at a time. Used by one thread.
class ActionThread {
 public:
  ActionThread() = default;
  ActionThread(const ActionThread&) = delete;
  ActionThread& operator=(const ActionThread&) = delete;
  // Waits until the running action has succeeded or failed.
  ~ActionThread();

  // True from start() until result() has returned the outcome.
  bool busy() const { return thread_.joinable(); }
  // Must not be called while busy().
  void start(const PendingAction& action);

  // Readable when the action is done: then call result().
  int fd() const { return done_.fd(); }
  // The outcome of the action, once. Blocks if the action is not done.
  std::optional<Notice> result();

 private:
  std::thread thread_;
  EventFd done_;
  Mutex mutex_;
  std::optional<Notice> notice_ GUARDED_BY(mutex_);
};

// Cancels the ticket or releases the lease, and returns the message for the user. Never throws
// exceptions that derive from std::exception.
Notice run_action(const PendingAction& action);

}  // namespace berth::top
