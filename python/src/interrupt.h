// Wakes a thread that waits in C++ when Python has a signal (Ctrl-C) or a task is cancelled.
#pragma once

#include <atomic>
#include <nanobind/nanobind.h>
#include <string>
#include <utility>

#include "base/unique_fd.h"

namespace berth::python {

// A pipe. The waiting thread polls read_fd(). Python's own signal handler writes to the pipe (see
// SignalWakeup), and so do cancel() and wake().
class Interrupt {
 public:
  Interrupt();

  int read_fd() const { return read_end_.get(); }
  int write_fd() const { return write_end_.get(); }

  // Thread-safe.
  void cancel();
  void wake();

  // Drains the pipe and runs the Python handlers of pending signals. True if the wait must end:
  // cancel() was called, or a handler raised an exception, which is then set. Needs the GIL.
  bool check_cancelled();
  // The numbers of the signals since the last call, one byte each, as Python writes them.
  std::string take_signals();

 private:
  void drain_pipe();

  UniqueFd read_end_;
  UniqueFd write_end_;
  std::string signals_;
  std::atomic<bool> cancelled_ = false;
};

// The Interrupt of this thread, which is reused. A fork gets a new one.
Interrupt& thread_interrupt();

// For its lifetime, signals wake a wait with `interrupt`. Does nothing outside of the main thread,
// the only thread in which Python runs signal handlers. (The C handler only notes the signal and
// writes to the wakeup descriptor.) The destructor restores the previous wakeup descriptor, such as
// that of an event loop, and passes the signals on to it. Needs the GIL.
class SignalWakeup {
 public:
  explicit SignalWakeup(Interrupt& interrupt);
  ~SignalWakeup();
  SignalWakeup(const SignalWakeup&) = delete;
  SignalWakeup& operator=(const SignalWakeup&) = delete;

 private:
  Interrupt& interrupt_;
  bool main_thread_;
  int previous_fd_ = -1;
};

void define_interrupt(nanobind::module_& module);

}  // namespace berth::python
