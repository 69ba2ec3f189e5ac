// Sets up the timer and its signal; see interrupter.h.
#include "base/interrupter.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mutex.h"

namespace berth {
namespace {

constexpr long kTickNs = 200'000'000;

void do_nothing(int /*number*/) {}

// The signal that all threads share.
struct SignalState {
  Mutex mutex;  // held during a fork
  int number GUARDED_BY(mutex) = 0;
  unsigned users GUARDED_BY(mutex) = 0;
  struct sigaction before GUARDED_BY(mutex) {};
};

SignalState& signal_state() {
  static auto* const one = new SignalState;  // never destroyed: threads may outlive main()
  return *one;
}

thread_local unsigned thread_users = 0;

sigset_t make_signal_set(int number) {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, number);
  return set;
}

// Restores the program's action, unless the program has set another one meanwhile.
void restore_action(SignalState& state) REQUIRES(state.mutex) {
  struct sigaction now {};
  if (::sigaction(state.number, nullptr, &now) == 0 && now.sa_handler == do_nothing) {
    ::sigaction(state.number, &state.before, nullptr);
  }
  state.number = 0;
}

// lock_signal_state() locks the mutex and another function unlocks it, which the analysis cannot
// follow.
void lock_signal_state() NO_THREAD_SAFETY_ANALYSIS {
  signal_state().mutex.lock();
}

void unlock_signal_state() NO_THREAD_SAFETY_ANALYSIS {
  signal_state().mutex.unlock();
}

void restore_signal_in_child() NO_THREAD_SAFETY_ANALYSIS {
  SignalState& state = signal_state();
  state.users = thread_users;  // the other threads are not in the child
  if (state.number != 0 && state.users == 0) restore_action(state);
  state.mutex.unlock();
}

void register_signal_fork_handlers() {
  static const int once =
      ::pthread_atfork(lock_signal_state, unlock_signal_state, restore_signal_in_child);
  (void)once;
}

// A real-time signal that this process does not seem to use; 0 if there is none. Prefers a signal
// that this thread does not block: the program may read a blocked one by sigwait() or a signalfd.
int find_free_signal() {
  sigset_t blocked;
  sigset_t pending;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  ::sigpending(&pending);
  int second_choice = 0;
  for (int number = SIGRTMAX - 2; number >= SIGRTMIN; --number) {
    struct sigaction now {};
    if (::sigaction(number, nullptr, &now) != 0 || (now.sa_flags & SA_SIGINFO) != 0 ||
        now.sa_handler != SIG_DFL || ::sigismember(&pending, number) == 1) {
      continue;
    }
    if (::sigismember(&blocked, number) == 0) return number;
    if (second_choice == 0) second_choice = number;
  }
  return second_choice;
}

// Installs the handler if no other thread has, and returns the signal; 0 if no signal is free.
int acquire_signal() {
  register_signal_fork_handlers();
  SignalState& state = signal_state();
  const MutexLock lock(state.mutex);
  if (state.users == 0) {
    state.number = find_free_signal();
    if (state.number == 0) return 0;
    struct sigaction action {};
    action.sa_handler = do_nothing;  // without SA_RESTART, so that calls return EINTR
    ::sigaction(state.number, &action, &state.before);
  }
  ++state.users;
  ++thread_users;
  return state.number;
}

void release_signal() {
  SignalState& state = signal_state();
  const MutexLock lock(state.mutex);
  --thread_users;
  if (--state.users == 0) restore_action(state);
}

}  // namespace

Interrupter::Interrupter() : number_(acquire_signal()), owner_(::getpid()) {
  if (number_ == 0) return;
  const sigset_t set = make_signal_set(number_);
  sigset_t before;
  ::pthread_sigmask(SIG_UNBLOCK, &set, &before);
  was_blocked_ = ::sigismember(&before, number_) == 1;
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = number_;
  event._sigev_un._tid = static_cast<pid_t>(::syscall(SYS_gettid));
  has_timer_ = ::timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
  const itimerspec ticks{{0, kTickNs}, {0, kTickNs}};
  if (has_timer_) ::timer_settime(timer_, 0, &ticks, nullptr);
}

Interrupter::~Interrupter() {
  if (number_ == 0) return;
  // A signal that is pending now is delivered before this call returns, because it is not blocked.
  // So no signal arrives after the program's action is restored.
  if (*this) ::timer_delete(timer_);
  const sigset_t set = make_signal_set(number_);
  if (was_blocked_) ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  release_signal();
}

Interrupter::operator bool() const {
  return has_timer_ && owner_ == ::getpid();
}

}  // namespace berth
