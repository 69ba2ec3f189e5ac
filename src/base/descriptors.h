// File descriptors: closed standard descriptors, writing a whole text, waiting for several, and the
// limit on open files.
#pragma once

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <initializer_list>
#include <string_view>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace berth {

// Opens /dev/null on each of the descriptors 0, 1 and 2 that is closed, in a mode in which using it
// fails. Call this first in main(): otherwise the next file that is opened gets the number of the
// closed descriptor, and output for the terminal goes into that file.
inline void fill_closed_standard_descriptors() {
  constexpr std::array unusable_mode{O_WRONLY, O_RDONLY, O_RDONLY};  // for stdin, stdout, stderr
  for (int fd = 0; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    // open() returns the lowest free number, which is `fd`: all numbers below it are in use.
    (void)::open("/dev/null", unusable_mode[static_cast<std::size_t>(fd)]);
  }
}

// Occupies the free ones of the descriptors 0, 1 and 2 during its lifetime, so that no other open()
// gets these numbers. For libraries, which must leave the program's descriptors as they are.
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

// Writes all bytes to a file. false, with errno: a part of them may have been written.
inline bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

// A descriptor that is readable when one of `fds` is. Empty, with errno set, if the process has no
// free descriptor.
inline UniqueFd open_epoll(std::initializer_list<int> fds) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  for (const int fd : fds) {
    epoll_event event{EPOLLIN, {}};
    ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event);
  }
  return epoll;
}

// Raises the soft limit on open files to the hard limit: the first waiter of the queue holds one
// descriptor for each lease. Returns the previous limit, with which child processes should start.
inline rlimit raise_descriptor_limit() {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  rlimit raised = before;
  raised.rlim_cur = before.rlim_max;
  if (raised.rlim_cur != before.rlim_cur) ::setrlimit(RLIMIT_NOFILE, &raised);
  return before;
}

}  // namespace berth
