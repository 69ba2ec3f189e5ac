// Descriptors: 0, 1 and 2 when a program is started without them, several to wait for, and how many
// there may be.
#pragma once

#include <array>
#include <fcntl.h>
#include <initializer_list>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace berth {

// If a standard descriptor is closed, the next file that is opened takes its number, and what was
// meant for a terminal goes into that file. Call this first in main(): a closed descriptor is
// filled so that using it fails, as it should.
inline void fill_closed_standard_descriptors() {
  constexpr std::array unusable_mode{O_WRONLY, O_RDONLY, O_RDONLY};  // for stdin, stdout, stderr
  for (int fd = 0; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    // The lowest free number is what open() returns, and all below are taken.
    (void)::open("/dev/null", unusable_mode[static_cast<std::size_t>(fd)]);
  }
}

// For libraries, which must leave the program's descriptors as they are: keeps the free ones among
// 0, 1 and 2 from being taken for as long as this lives.
class StandardDescriptorGuard {
 public:
  StandardDescriptorGuard() {
    for (int& fd : placeholders_) {
      fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
      if (fd > STDERR_FILENO) {
        ::close(fd);
        fd = -1;
      }
      if (fd < 0) break;
    }
  }
  ~StandardDescriptorGuard() {
    for (const int fd : placeholders_) {
      if (fd >= 0) ::close(fd);
    }
  }
  StandardDescriptorGuard(const StandardDescriptorGuard&) = delete;
  StandardDescriptorGuard& operator=(const StandardDescriptorGuard&) = delete;

 private:
  std::array<int, 3> placeholders_{-1, -1, -1};
};

// Readable when one of them is. Empty, with errno set, if there is no descriptor left.
inline UniqueFd open_epoll(std::initializer_list<int> fds) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  for (const int fd : fds) {
    epoll_event event{EPOLLIN, {}};
    ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event);
  }
  return epoll;
}

// Raises the limit of open files as far as it goes (who is first in the queue holds one per lease),
// and gives what it was before: a child should start with that.
inline rlimit raise_descriptor_limit() {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  rlimit raised = before;
  raised.rlim_cur = before.rlim_max;
  if (raised.rlim_cur != before.rlim_cur) ::setrlimit(RLIMIT_NOFILE, &raised);
  return before;
}

}  // namespace berth
