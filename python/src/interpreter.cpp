// Who returns to the interpreter, and when nobody does any more; see interpreter.h.
#include "python/src/interpreter.h"

#include <atomic>
#include <pthread.h>
#include <unistd.h>

namespace berth::python {
namespace {

std::atomic<bool> ending = false;
std::atomic<int> returning = 0;  // threads that wait for the interpreter

// A fork has none of them.
const int kForksStartAnew = ::pthread_atfork(nullptr, nullptr, [] { returning = 0; });

// Between this and the end of its scope, let_nobody_return() waits for us; or we sleep.
class Returning {
 public:
  Returning() {
    ++returning;
    if (!ending || ::gettid() == ::getpid()) return;
    --returning;
    for (;;) ::pause();
  }
  Returning(const Returning&) = delete;
  Returning& operator=(const Returning&) = delete;
  ~Returning() { --returning; }
};

PyGILState_STATE ensure() {
  const Returning here;
  return PyGILState_Ensure();
}

}  // namespace

void let_nobody_return() {
  constexpr useconds_t kMomentUs = 100;
  ending = true;
  while (returning > 0) {
    PyThreadState* state = PyEval_SaveThread();
    ::usleep(kMomentUs);
    PyEval_RestoreThread(state);
  }
}

WithoutInterpreter::~WithoutInterpreter() {
  const Returning here;
  PyEval_RestoreThread(state_);
}

WithInterpreter::WithInterpreter() : state_(ensure()) {}

}  // namespace berth::python
