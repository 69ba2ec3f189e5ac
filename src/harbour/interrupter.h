// A time limit for system calls that have none, such as flock().
#pragma once

#include <csignal>
#include <ctime>
#include <sys/types.h>

namespace berth {

// While one exists, a timer sends its thread a signal every 200 ms whose handler does nothing, so
// that a blocking call of this thread returns EINTR.
//
// The process may be another program's, with Berth as a library. The signal is a real-time signal
// whose action is the default one and that is not pending; the process's action and this thread's
// mask are restored at the end. Several threads may have one at once, and a fork may happen
// meanwhile: in the child, only what the thread that forked has remains. Must end in the thread
// that made it.
class Interrupter {
 public:
  Interrupter();
  Interrupter(const Interrupter&) = delete;
  Interrupter& operator=(const Interrupter&) = delete;
  ~Interrupter();

  // False if no signal or timer was free, or in a fork: then nothing interrupts.
  explicit operator bool() const;

 private:
  int number_ = 0;  // the signal; 0: there is none
  bool was_blocked_ = false;
  bool has_timer_ = false;
  timer_t timer_{};
  pid_t owner_;  // timers are not inherited by forks
};

}  // namespace berth
