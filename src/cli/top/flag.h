// A flag that one thread raises and another waits for in poll().
#pragma once

#include <cstdint>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace berth::top {

class Flag {
 public:
  Flag() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  // Readable while it is raised.
  int fd() const { return fd_.get(); }
  void raise() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(fd_.get(), &one, sizeof one);
  }
  void lower() {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = ::read(fd_.get(), &count, sizeof count);
  }

 private:
  UniqueFd fd_;
};

}  // namespace berth::top
