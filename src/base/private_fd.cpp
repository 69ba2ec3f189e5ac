// The registry of descriptors that are closed in forked children; see private_fd.h.
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

struct DescriptorRegistry {
  Mutex mutex;  // held during a fork, so that the child's copy of the list is consistent
  std::vector<int> descriptors GUARDED_BY(mutex);
  // Incremented in the child of each fork. Not a PID, because the kernel reuses PIDs.
  std::atomic<unsigned> fork_generation = 0;
};

DescriptorRegistry& registry() {
  // Never destroyed: threads may outlive main().
  static auto* const instance = new DescriptorRegistry;
  return *instance;
}

// The analysis cannot follow a mutex that one function locks and another unlocks.
void lock_registry() NO_THREAD_SAFETY_ANALYSIS {
  registry().mutex.lock();
}

void unlock_registry() NO_THREAD_SAFETY_ANALYSIS {
  registry().mutex.unlock();
}

void close_descriptors_in_child() NO_THREAD_SAFETY_ANALYSIS {
  for (const int fd : registry().descriptors) ::close(fd);
  registry().descriptors.clear();
  ++registry().fork_generation;
  registry().mutex.unlock();
}

void register_descriptor_fork_handlers() {
  static const int once =
      ::pthread_atfork(lock_registry, unlock_registry, close_descriptors_in_child);
  (void)once;
}

}  // namespace

PrivateFd::PrivateFd(UniqueFd fd) : fd_(std::move(fd)) {
  if (!fd_) return;
  register_descriptor_fork_handlers();
  DescriptorRegistry& state = registry();
  const MutexLock lock(state.mutex);
  fork_generation_ = state.fork_generation;
  state.descriptors.push_back(fd_.get());
}

bool PrivateFd::is_from_this_process() const {
  return fork_generation_ == registry().fork_generation;
}

UniqueFd PrivateFd::share() && {
  if (!is_from_this_process()) {
    (void)fd_.release();  // the fork closed it; the number may belong to another file now
    return {};
  }
  DescriptorRegistry& state = registry();
  const MutexLock lock(state.mutex);
  std::erase(state.descriptors, fd_.get());
  return std::move(fd_);
}

void PrivateFd::reset() {
  if (fd_) std::move(*this).share().reset();
}

}  // namespace berth
