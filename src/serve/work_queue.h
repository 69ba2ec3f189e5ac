// Worker threads for slow requests: history, reports, changes, ends of jobs and their output.
//
// Identical requests share one result, so however many clients ask, the archive is read once in a
// few seconds.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "serve/http_response.h"

namespace berth::serve {

// The response to work that was submitted to a WorkQueue. Thread-safe.
//
// The worker thread sets it exactly once, and then calls the queue's `on_done`. There is no way to
// block on it: a waiting thread also watches its connection, so it polls an EventFd that `on_done`
// notifies (see Subscription), and calls get() after each wake-up. If the queue is destroyed before
// the work is done, the response is never set.
class PendingResponse {
 public:
  // nullopt until the work is done.
  std::optional<HttpResponse> get() const {
    const MutexLock lock(mutex_);
    return response_;
  }
  // Called by the WorkQueue only.
  void set(HttpResponse response) {
    const MutexLock lock(mutex_);
    response_ = std::move(response);
  }

 private:
  mutable Mutex mutex_;
  std::optional<HttpResponse> response_ GUARDED_BY(mutex_);
};
using SharedPendingResponse = std::shared_ptr<const PendingResponse>;

struct WorkQueueOptions {
  // How many works may run at once. The first thread starts with the queue; another one starts when
  // work comes while all others are busy.
  std::size_t threads = 1;
  // submit_once() returns a result that is at most so old.
  std::chrono::seconds max_result_age{3};
  // Results that are kept for submit_once().
  std::size_t max_results = 8;
};

// Runs submitted work; starts it in the order in which it was submitted. Thread-safe. Work that
// throws yields a response with status 503.
class WorkQueue {
 public:
  using Clock = std::chrono::steady_clock;
  using Work = std::function<HttpResponse()>;

  // `on_done` is called in a worker thread after each PendingResponse::set().
  explicit WorkQueue(std::function<void()> on_done, const WorkQueueOptions& options = {});
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;
  // Waits for the work that runs now, and drops the rest.
  ~WorkQueue();

  // Null if the queue is full.
  SharedPendingResponse submit(Work work);
  // Like submit(). If there is a result for the same key that is pending or not too old, returns
  // that result and drops `work`.
  SharedPendingResponse submit_once(const std::string& key, Work work);
  // Forgets all results: the next submit_once() of each key runs its work.
  void invalidate();

 private:
  struct CachedResult {
    SharedPendingResponse pending;
    Clock::time_point submitted_at;
  };
  SharedPendingResponse enqueue(Work work) REQUIRES(mutex_);
  void evict_expired(Clock::time_point now) REQUIRES(mutex_);
  void start_thread() REQUIRES(mutex_);
  void run();

  const std::function<void()> on_done_;
  const WorkQueueOptions options_;
  Mutex mutex_;
  Condition work_available_;
  std::deque<std::pair<Work, std::shared_ptr<PendingResponse>>> queue_ GUARDED_BY(mutex_);
  std::map<std::string, CachedResult> cache_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::size_t idle_threads_ GUARDED_BY(mutex_) = 0;
  std::vector<std::thread> threads_ GUARDED_BY(mutex_);
};

}  // namespace berth::serve
