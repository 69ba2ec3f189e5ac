// Working without the interpreter, and with it again.
//
// When Python ends, its main thread goes on alone: a daemon thread that then asks for the
// interpreter is ended by Python in the middle of C++ (pthread_exit), which brings the whole
// process down with an abort. So from block_interpreter_reentry() on such a thread sleeps instead,
// until the process is gone. (Python 3.14 does the same by itself.)
#pragma once

#include <Python.h>

namespace berth::python {

// For Python's atexit. Those who are on their way back arrive first.
void block_interpreter_reentry();

// For as long as this lives, other threads may have the interpreter.
class ScopedGilRelease {
 public:
  ScopedGilRelease() : state_(PyEval_SaveThread()) {}
  ScopedGilRelease(const ScopedGilRelease&) = delete;
  ScopedGilRelease& operator=(const ScopedGilRelease&) = delete;
  ~ScopedGilRelease();

 private:
  PyThreadState* state_;
};

// For as long as this lives, this thread has it; inside of the above.
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
