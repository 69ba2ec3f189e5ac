// The list of descriptors that a fork closes; see private_fd.h.
#include "base/private_fd.h"

#include <algorithm>
#include <mutex>
#include <pthread.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace berth {
namespace {

struct Register {
  std::mutex mutex;  // held over a fork: the child finds the list whole
  std::vector<int> descriptors;
};

Register& all() {
  static auto* const one = new Register;  // never destroyed: threads may outlive main()
  return *one;
}

void watch_forks() {
  static const int once = ::pthread_atfork([] { all().mutex.lock(); }, [] { all().mutex.unlock(); },
                                           [] {
                                             for (const int fd : all().descriptors) ::close(fd);
                                             all().descriptors.clear();
                                             all().mutex.unlock();
                                           });
  (void)once;
}

}  // namespace

PrivateFd::PrivateFd(UniqueFd fd) : fd_(std::move(fd)) {
  if (!fd_) return;
  watch_forks();
  const std::lock_guard lock(all().mutex);
  all().descriptors.push_back(fd_.get());
}

UniqueFd PrivateFd::shared() && {
  const std::lock_guard lock(all().mutex);
  std::erase(all().descriptors, fd_.get());
  return std::move(fd_);
}

void PrivateFd::reset() {
  if (fd_) std::move(*this).shared().reset();
}

}  // namespace berth
