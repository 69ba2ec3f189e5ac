// Interrupts blocking system calls that have no time limit, such as flock().
#pragma once

#include <csignal>
#include <ctime>
#include <sys/types.h>

namespace berth {

// While it exists, a timer sends the thread that made it a signal every 200 ms. The handler does
// nothing, so a blocking call of that thread returns EINTR.
//
// Berth may be a library in another program (Python), so it must not disturb that program's
// signals. It uses a real-time signal that has the default action and is not pending, and the
// destructor restores the process's action and the thread's mask. Several threads may have an
// Interrupter at the same time. In a forked child, only that of the thread that forked remains,
// without its timer. The thread that made it must destroy it.
class Interrupter {
 public:
  Interrupter();
  Interrupter(const Interrupter&) = delete;
  Interrupter& operator=(const Interrupter&) = delete;
  ~Interrupter();

  // False if there was no free signal or timer, and in a forked child: then nothing is interrupted.
  explicit operator bool() const;

 private:
  int number_ = 0;  // of the signal; 0 if no signal is free
  bool was_blocked_ = false;
  bool has_timer_ = false;
  timer_t timer_{};
  pid_t owner_;  // a forked child does not inherit the timer
};

}  // namespace berth
