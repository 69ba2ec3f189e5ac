// Receives signals through a descriptor instead of signal handlers.
#pragma once

#include <csignal>
#include <initializer_list>
#include <optional>
#include <sys/signalfd.h>

#include "base/unique_fd.h"

namespace berth {

// Blocks the given signals in the calling thread and queues them for next(), during its lifetime.
// A signal that was ignored before stays ignored (nohup), except SIGCHLD: a caller that names
// SIGCHLD has children and needs their exit status.
class SignalQueue {
 public:
  explicit SignalQueue(std::initializer_list<int> numbers);
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;
  ~SignalQueue();

  // Readable while a signal is queued.
  int fd() const { return fd_.get(); }
  // Removes and returns the next signal; nullopt: no signal is queued. Never waits.
  std::optional<signalfd_siginfo> next();
  // For a process that is about to exit: the signals stay blocked after this object, so that one
  // that arrives late does not end it sooner.
  void keep_blocked() { keeps_blocked_ = true; }
  // The signal mask before this object, with which child processes should start.
  const sigset_t& previous_mask() const { return previous_mask_; }

 private:
  UniqueFd fd_;
  sigset_t previous_mask_{};
  bool keeps_blocked_ = false;
};

}  // namespace berth
