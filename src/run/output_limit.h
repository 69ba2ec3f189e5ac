// Bounds the disk space of a detached job's output while the job writes to it.
#pragma once

#include <chrono>
#include <sys/types.h>

#include "base/quantity.h"

namespace berth {

// The job writes to the file itself, so that nothing is lost if its berth process is killed. Of a
// file that becomes too large, the middle is given back to the file system: the beginning and the
// end stay, and the file keeps its size and has a hole. On a file system without holes (NFS before
// 4.2) the file is not bounded.
class OutputLimit {
 public:
  // `fd` is open for writing. After a call the file takes at most a quarter more than `limit`.
  OutputLimit(int fd, Bytes limit) : fd_(fd), limit_(limit) {}

  // Removes what is too much; returns the time until the next call, by how fast the file grows.
  std::chrono::milliseconds apply();

 private:
  int fd_;
  Bytes limit_;
  off_t last_size_ = 0;
  off_t hole_end_ = 0;
};

// How much of the beginning stays: it says how the job was started.
constexpr Bytes kKeptBeginning = mib(1);

}  // namespace berth
