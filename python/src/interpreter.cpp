// Acquiring the GIL, also during Python's shutdown; see interpreter.h.
#include "python/src/interpreter.h"

#include <atomic>
#include <pthread.h>
#include <unistd.h>

namespace berth::python {
namespace {

std::atomic<bool> shutting_down = false;
std::atomic<int> reentering_threads = 0;  // threads that wait for the GIL

// A fork does not have the threads of its parent.
const int kForkHandler = ::pthread_atfork(nullptr, nullptr, [] { reentering_threads = 0; });

// block_interpreter_reentry() waits until no guard exists. Afterwards the constructor does not
// return, except in the main thread: the thread sleeps until the process exits.
class ReentryGuard {
 public:
  ReentryGuard() {
    ++reentering_threads;
    if (!shutting_down || ::gettid() == ::getpid()) return;
    --reentering_threads;
    for (;;) ::pause();
  }
  ReentryGuard(const ReentryGuard&) = delete;
  ReentryGuard& operator=(const ReentryGuard&) = delete;
  ~ReentryGuard() { --reentering_threads; }
};

PyGILState_STATE acquire_gil() {
  const ReentryGuard guard;
  return PyGILState_Ensure();
}

}  // namespace

void block_interpreter_reentry() {
  constexpr useconds_t kPollUs = 100;
  shutting_down = true;
  while (reentering_threads > 0) {
    PyThreadState* state = PyEval_SaveThread();
    ::usleep(kPollUs);
    PyEval_RestoreThread(state);
  }
}

ScopedGilRelease::~ScopedGilRelease() {
  const ReentryGuard guard;
  PyEval_RestoreThread(state_);
}

ScopedGilAcquire::ScopedGilAcquire() : state_(acquire_gil()) {}

}  // namespace berth::python
