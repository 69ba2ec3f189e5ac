// Queues work, runs it and caches results; see work_queue.h.
#include "serve/work_queue.h"

#include <exception>
#include <fmt/format.h>
#include <system_error>
#include <utility>

namespace berth::serve {
namespace {

constexpr std::size_t kMaxQueued = 16;

// Thread entry: an exception becomes a response, because a client waits for one.
HttpResponse run_work(const WorkQueue::Work& work) {
  try {
    return work();
  } catch (const std::exception& problem) {
    return error_response(503, fmt::format("internal error: {}", problem.what()));
  }
}

}  // namespace

WorkQueue::WorkQueue(std::function<void()> on_done, const WorkQueueOptions& options)
    : on_done_(std::move(on_done)), options_(options) {
  const MutexLock lock(mutex_);
  start_thread();
}

WorkQueue::~WorkQueue() {
  std::vector<std::thread> threads;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    threads.swap(threads_);
  }
  work_available_.notify_all();
  for (std::thread& one : threads) one.join();
}

void WorkQueue::start_thread() {
  threads_.emplace_back([this] { run(); });
  ++idle_threads_;
}

SharedPendingResponse WorkQueue::enqueue(Work work) {
  if (queue_.size() >= kMaxQueued) return nullptr;
  if (idle_threads_ <= queue_.size() && threads_.size() < options_.threads) {
    try {
      start_thread();
    } catch (const std::system_error&) {
      // The system has no more threads for this user; those that run take the work later.
    }
  }
  auto pending = std::make_shared<PendingResponse>();
  queue_.emplace_back(std::move(work), pending);
  work_available_.notify_all();
  return pending;
}

SharedPendingResponse WorkQueue::submit(Work work) {
  const MutexLock lock(mutex_);
  return enqueue(std::move(work));
}

SharedPendingResponse WorkQueue::submit_once(const std::string& key, Work work) {
  const MutexLock lock(mutex_);
  const auto now = Clock::now();
  evict_expired(now);
  if (const auto found = cache_.find(key); found != cache_.end()) return found->second.pending;
  SharedPendingResponse pending = enqueue(std::move(work));
  if (pending && cache_.size() < options_.max_results) cache_[key] = {pending, now};
  return pending;
}

void WorkQueue::invalidate() {
  const MutexLock lock(mutex_);
  cache_.clear();  // also pending results: their work may have read the old data
}

// A pending result never expires: its work has not read anything yet, or reads now.
void WorkQueue::evict_expired(Clock::time_point now) {
  std::erase_if(cache_, [&](const auto& one) {
    return now - one.second.submitted_at > options_.max_result_age && one.second.pending->get();
  });
}

void WorkQueue::run() {
  MutexLock lock(mutex_);
  for (;;) {
    while (!stopping_ && queue_.empty()) work_available_.wait(mutex_);
    if (stopping_) return;
    const auto [work, pending] = std::move(queue_.front());
    queue_.pop_front();
    --idle_threads_;
    lock.unlock();
    pending->set(run_work(work));
    on_done_();
    lock.lock();
    ++idle_threads_;
  }
}

}  // namespace berth::serve
