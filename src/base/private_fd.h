// A file descriptor that forks of this process do not get.
//
// Close-on-exec is not enough where others fork without exec: in a program with threads (Python's,
// say) one of them may fork while another is at work here. What the child then held open would keep
// the harbour locked, or a ticket in the queue, for as long as the child lives.
#pragma once

#include "base/unique_fd.h"

namespace berth {

// Move-only. Any thread may make, move and close one.
class PrivateFd {
 public:
  PrivateFd() = default;
  PrivateFd(UniqueFd fd);  // NOLINT(google-explicit-constructor): it is the same descriptor
  PrivateFd(PrivateFd&&) noexcept = default;
  PrivateFd& operator=(PrivateFd&& other) noexcept = default;
  PrivateFd(const PrivateFd&) = delete;
  PrivateFd& operator=(const PrivateFd&) = delete;
  ~PrivateFd() { reset(); }

  int get() const { return fd_.get(); }
  explicit operator bool() const { return static_cast<bool>(fd_); }
  void reset();

  // From now on forks get it like any other.
  UniqueFd shared() &&;

 private:
  UniqueFd fd_;
};

}  // namespace berth
