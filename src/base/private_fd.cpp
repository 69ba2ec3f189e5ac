// The list of descriptors that a fork closes; see private_fd.h.
#include "base/private_fd.h"

#include <algorithm>
#include <atomic>
#include <pthread.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace berth {
namespace {

struct Register {
  Mutex mutex;  // held over a fork: the child finds the list whole
  std::vector<int> descriptors GUARDED_BY(mutex);
  std::atomic<unsigned> process = 0;  // grows with each fork; not a PID, which may be used again
};

Register& all() {
  static auto* const one = new Register;  // never destroyed: threads may outlive main()
  return *one;
}

// These hold the mutex from one function to the next, which the analysis cannot follow.
void before_fork() NO_THREAD_SAFETY_ANALYSIS {
  all().mutex.lock();
}

void after_fork_in_parent() NO_THREAD_SAFETY_ANALYSIS {
  all().mutex.unlock();
}

void after_fork_in_child() NO_THREAD_SAFETY_ANALYSIS {
  for (const int fd : all().descriptors) ::close(fd);
  all().descriptors.clear();
  ++all().process;
  all().mutex.unlock();
}

void watch_forks() {
  static const int once = ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  (void)once;
}

}  // namespace

PrivateFd::PrivateFd(UniqueFd fd) : fd_(std::move(fd)) {
  if (!fd_) return;
  watch_forks();
  Register& list = all();
  const MutexLock lock(list.mutex);
  process_ = list.process;
  list.descriptors.push_back(fd_.get());
}

bool PrivateFd::is_ours() const {
  return process_ == all().process;
}

UniqueFd PrivateFd::shared() && {
  if (!is_ours()) {
    (void)fd_.release();  // closed by the fork; the number may be another file's now
    return {};
  }
  Register& list = all();
  const MutexLock lock(list.mutex);
  std::erase(list.descriptors, fd_.get());
  return std::move(fd_);
}

void PrivateFd::reset() {
  if (fd_) std::move(*this).shared().reset();
}

}  // namespace berth
