// A file descriptor that forks of this process do not get.
//
// Close-on-exec is not enough where the host program forks without exec: in a program with threads
// (Python's, say) one thread may fork while another uses Berth. What the child then held open would
// keep the harbour locked, or a ticket in the queue, for as long as the child lives.
//
// The descriptor is closed in the child by the fork itself. An object that the child has inherited
// is empty from then on: a Python signal handler may fork while its thread waits for a GPU, and the
// child returns into the wait.
#pragma once

#include <utility>

#include "base/unique_fd.h"

namespace berth {

// Move-only. Any thread may make, move and close one.
class PrivateFd {
 public:
  PrivateFd() = default;
  PrivateFd(UniqueFd fd);  // NOLINT(google-explicit-constructor): it is the same descriptor
  PrivateFd(PrivateFd&&) noexcept = default;
  PrivateFd& operator=(PrivateFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(fork_generation_, other.fork_generation_);
    return *this;
  }
  PrivateFd(const PrivateFd&) = delete;
  PrivateFd& operator=(const PrivateFd&) = delete;
  ~PrivateFd() { reset(); }

  // -1 if there is none, and in a fork of the process that made it.
  int get() const { return is_from_this_process() ? fd_.get() : -1; }
  explicit operator bool() const { return get() >= 0; }
  void reset();

  // From now on forks get it like any other. Nothing in a fork.
  UniqueFd share() &&;

 private:
  bool is_from_this_process() const;

  UniqueFd fd_;
  unsigned fork_generation_ =
      0;  // how many forks lie between the first process and the one that made it
};

}  // namespace berth
