// How a thread that waits in C++ is told that Python wants something: Ctrl-C, or a task's end.
#pragma once

#include <atomic>
#include <nanobind/nanobind.h>
#include <string>
#include <utility>

#include "base/unique_fd.h"

namespace berth::python {

// A pipe. What is written into it wakes who waits: Python's own signal handler writes there (see
// SignalWakeup), and so does cancel().
class Interrupt {
 public:
  Interrupt();

  int read_fd() const { return read_end_.get(); }
  int write_fd() const { return write_end_.get(); }

  // Any thread may call them.
  void cancel();
  void wake();

  // Takes what was written; with signals, runs their Python handlers. True if it is time to leave:
  // because cancel() was called, or a handler raised, and then that exception is set. Needs the
  // interpreter.
  bool check_cancelled();
  // The numbers of the signals that came since the last time, as Python wrote them.
  std::string take_signals();

 private:
  void drain_pipe();

  UniqueFd read_end_;
  UniqueFd write_end_;
  std::string signals_;
  std::atomic<bool> cancelled_ = false;
};

// This thread's own, kept for the next time; in a fork, the fork's.
Interrupt& thread_interrupt();

// For as long as this lives, signals wake who waits with `interrupt`, if this is the main thread,
// in which Python runs their handlers. Python's own part of a handler only makes a note and writes
// to the wakeup descriptor. What arrived is passed on to whoever had the descriptor before: an
// event loop, for example. Needs the interpreter.
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
