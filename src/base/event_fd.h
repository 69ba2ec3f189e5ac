// Waking a thread that waits in poll(), from any other one.
#pragma once

#include <cstdint>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace berth {

class EventFd {
 public:
  EventFd() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  // Readable once somebody has called it, until clear().
  int fd() const { return fd_.get(); }
  void notify() const {
    const std::uint64_t one = 1;
    // It fails where the number would not fit any more: then there is one already.
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
