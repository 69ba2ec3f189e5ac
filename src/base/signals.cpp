// Receives signals through a signalfd; see signals.h.
#include "base/signals.h"

#include <unistd.h>

namespace berth {

SignalQueue::SignalQueue(std::initializer_list<int> numbers) {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : numbers) {
    // If SIGCHLD is ignored, the kernel discards the exit status of children. The destructor does
    // not restore this: POSIX does not specify whether exec keeps SIGCHLD ignored, and a job that
    // waits for its own children could not work with it.
    if (number == SIGCHLD) std::signal(SIGCHLD, SIG_DFL);
    // Ignored signals are not blocked: the kernel queues a blocked signal even if it is ignored.
    struct sigaction current {};
    const bool ignored =
        ::sigaction(number, nullptr, &current) == 0 && current.sa_handler == SIG_IGN;
    if (!ignored) ::sigaddset(&set, number);
  }
  ::pthread_sigmask(SIG_BLOCK, &set, &previous_mask_);
  fd_ = UniqueFd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

SignalQueue::~SignalQueue() {
  if (!keeps_blocked_) ::pthread_sigmask(SIG_SETMASK, &previous_mask_, nullptr);
}

std::optional<signalfd_siginfo> SignalQueue::next() {
  signalfd_siginfo info{};
  if (::read(fd_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
  return info;
}

}  // namespace berth
