// Releases and acquires Python's GIL, safely also while the interpreter shuts down.
//
// When Python exits, only its main thread continues. If a daemon thread then tries to acquire the
// GIL, Python ends that thread in the middle of C++ code (pthread_exit), and the whole process
// aborts. So after block_interpreter_reentry() such a thread sleeps until the process exits.
// (Python 3.14 does the same by itself.)
#pragma once

#include <Python.h>

namespace berth::python {

// Called from Python's atexit. First waits for the threads that are already acquiring the GIL.
void block_interpreter_reentry();

// Releases the GIL for its lifetime.
class ScopedGilRelease {
 public:
  ScopedGilRelease() : state_(PyEval_SaveThread()) {}
  ScopedGilRelease(const ScopedGilRelease&) = delete;
  ScopedGilRelease& operator=(const ScopedGilRelease&) = delete;
  ~ScopedGilRelease();

 private:
  PyThreadState* state_;
};

// Holds the GIL for its lifetime; for use inside of a ScopedGilRelease.
class ScopedGilAcquire {
 public:
  ScopedGilAcquire();
  ScopedGilAcquire(const ScopedGilAcquire&) = delete;
  ScopedGilAcquire& operator=(const ScopedGilAcquire&) = delete;
  ~ScopedGilAcquire() { PyGILState_Release(state_); }

 private:
  PyGILState_STATE state_;
};

}  // namespace berth::python
