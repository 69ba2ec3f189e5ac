// Wakes a thread that waits in poll() or epoll_wait().
#pragma once

#include <cstdint>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace berth {

// Thread-safe: any thread may notify() and clear().
class EventFd {
 public:
  EventFd() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  // Readable from the first notify() until clear().
  int fd() const { return fd_.get(); }
  void notify() const {
    const std::uint64_t one = 1;
    // write() fails only if the counter would overflow; the descriptor is readable then anyway.
    (void)!::write(fd_.get(), &one, sizeof one);
  }
  void clear() const {
    std::uint64_t number = 0;
    (void)!::read(fd_.get(), &number, sizeof number);
  }

 private:
  UniqueFd fd_;
};

}  // namespace berth
