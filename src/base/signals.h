// Signals as something to wait for, instead of something that interrupts.
#pragma once

#include <csignal>
#include <initializer_list>
#include <optional>
#include <sys/signalfd.h>

#include "base/unique_fd.h"

namespace berth {

// From its making, these signals wait to be read. One that was ignored before stays ignored
// (nohup), but for SIGCHLD: who asks for that has children whose ends he must learn.
class SignalQueue {
 public:
  explicit SignalQueue(std::initializer_list<int> numbers);
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;
  ~SignalQueue();

  // Readable when a signal waits.
  int fd() const { return fd_.get(); }
  // The next signal, or nothing if none waits.
  std::optional<signalfd_siginfo> next();
  // What was blocked before, for a child to be started with.
  const sigset_t& previous_mask() const { return previous_mask_; }

 private:
  UniqueFd fd_;
  sigset_t previous_mask_{};
};

}  // namespace berth
