// A file descriptor that forked children of this process do not inherit.
//
// Close-on-exec is not enough if the program forks without exec: in a program with threads (a
// Python program, for example) one thread may fork while another uses Berth. A descriptor that the
// child inherits keeps the harbour locked, or a ticket in the queue, until the child exits.
//
// A fork handler closes the descriptor in the child. The child's copy of the object is empty from
// then on: a Python signal handler may fork while its thread waits for a GPU, and the child then
// returns into the code that waits.
#pragma once

#include <utility>

#include "base/unique_fd.h"

namespace berth {

// Move-only. Objects may be created, moved and closed in any thread.
class PrivateFd {
 public:
  PrivateFd() = default;
  PrivateFd(UniqueFd fd);  // NOLINT(google-explicit-constructor): the same descriptor
  PrivateFd(PrivateFd&&) noexcept = default;
  PrivateFd& operator=(PrivateFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(fork_generation_, other.fork_generation_);
    return *this;
  }
  PrivateFd(const PrivateFd&) = delete;
  PrivateFd& operator=(const PrivateFd&) = delete;
  ~PrivateFd() { reset(); }

  // -1 if the object is empty, and in a forked child of the process that created it.
  int get() const { return is_from_this_process() ? fd_.get() : -1; }
  explicit operator bool() const { return get() >= 0; }
  void reset();

  // Gives the descriptor up as one that forked children inherit. Empty in a forked child of the
  // process that created the object.
  UniqueFd share() &&;

 private:
  bool is_from_this_process() const;

  UniqueFd fd_;
  unsigned fork_generation_ = 0;  // the number of forks before the process that created the object
};

}  // namespace berth
