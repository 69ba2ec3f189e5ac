// How a thread that waits in C++ is told that Python wants something: Ctrl-C, or a task's end.
#pragma once

#include <atomic>
#include <nanobind/nanobind.h>
#include <string>
#include <utility>

#include "base/unique_fd.h"

namespace berth::python {

// A pipe. What is written into it wakes who waits: Python's own signal handler writes there (see
// SignalsWake), and so does leave().
class Interrupt {
 public:
  Interrupt();

  int reading() const { return reading_.get(); }
  int writing() const { return writing_.get(); }

  // Any thread may call them.
  void leave();
  void wake();

  // Takes what was written; with signals, runs their Python handlers. True if it is time to leave:
  // because leave() was called, or a handler raised, and then that exception is set. Needs the
  // interpreter.
  bool leaves();
  // The numbers of the signals that came since the last time, as Python wrote them.
  std::string seen();

 private:
  void take();

  UniqueFd reading_;
  UniqueFd writing_;
  std::string seen_;
  std::atomic<bool> leaving_ = false;
};

// This thread's own, kept for the next time; in a fork, the fork's.
Interrupt& own_interrupt();

// For as long as this lives, signals wake who waits with `interrupt`, if this is the main thread,
// in which Python runs their handlers. Python's own part of a handler only makes a note and writes
// to the wakeup descriptor. What arrived is passed on to whoever had the descriptor before: an
// event loop, for example. Needs the interpreter.
class SignalsWake {
 public:
  explicit SignalsWake(Interrupt& interrupt);
  ~SignalsWake();
  SignalsWake(const SignalsWake&) = delete;
  SignalsWake& operator=(const SignalsWake&) = delete;

 private:
  Interrupt& interrupt_;
  bool main_thread_;
  int before_ = -1;
};

void define_interrupt(nanobind::module_& module);

}  // namespace berth::python
