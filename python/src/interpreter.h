// Working without the interpreter, and with it again.
//
// When Python ends, its main thread goes on alone: a daemon thread that then asks for the
// interpreter is ended by Python in the middle of C++ (pthread_exit), which brings the whole
// process down with an abort. So from let_nobody_return() on such a thread sleeps instead, until
// the process is gone. (Python 3.14 does the same by itself.)
#pragma once

#include <Python.h>

namespace berth::python {

// For Python's atexit. Those who are on their way back arrive first.
void let_nobody_return();

// For as long as this lives, other threads may have the interpreter.
class WithoutInterpreter {
 public:
  WithoutInterpreter() : state_(PyEval_SaveThread()) {}
  WithoutInterpreter(const WithoutInterpreter&) = delete;
  WithoutInterpreter& operator=(const WithoutInterpreter&) = delete;
  ~WithoutInterpreter();

 private:
  PyThreadState* state_;
};

// For as long as this lives, this thread has it; inside of the above.
class WithInterpreter {
 public:
  WithInterpreter();
  WithInterpreter(const WithInterpreter&) = delete;
  WithInterpreter& operator=(const WithInterpreter&) = delete;
  ~WithInterpreter() { PyGILState_Release(state_); }

 private:
  PyGILState_STATE state_;
};

}  // namespace berth::python
