// Work that takes longer than an answer may, done one after the other by a thread of its own.
//
// Who answers is given a slip, which says when the answer is there. Who asks what somebody else has
// asked a moment ago is given the same slip: however many ask, the archive is read once in a few
// seconds.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "serve/http_response.h"

namespace berth::serve {

// An answer that is there, or yet to come.
class PendingResponse {
 public:
  std::optional<HttpResponse> get() const {
    const MutexLock lock(mutex_);
    return response_;
  }
  void set(HttpResponse response) {
    const MutexLock lock(mutex_);
    response_ = std::move(response);
  }

 private:
  mutable Mutex mutex_;
  std::optional<HttpResponse> response_ GUARDED_BY(mutex_);
};
using SharedPendingResponse = std::shared_ptr<const PendingResponse>;

class WorkQueue {
 public:
  using Clock = std::chrono::steady_clock;
  using Work = std::function<HttpResponse()>;

  // `on_done` is called in the desk's thread whenever a slip was filled.
  explicit WorkQueue(std::function<void()> on_done);
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;
  // Waits for the work at hand; what is behind it is not done.
  ~WorkQueue();

  // Null if there is too much to do already.
  SharedPendingResponse submit(Work work);
  // The same, unless an answer to the same question is there that is not too old, or comes.
  SharedPendingResponse submit_once(const std::string& key, Work work);
  // Answers that are there already are too old from now on.
  void invalidate();

 private:
  struct CachedResult {
    SharedPendingResponse pending;
    Clock::time_point submitted_at;
  };
  SharedPendingResponse enqueue(Work work) REQUIRES(mutex_);
  void evict_expired(Clock::time_point now) REQUIRES(mutex_);
  void run();

  std::function<void()> on_done_;
  Mutex mutex_;
  Condition work_available_;
  std::deque<std::pair<Work, std::shared_ptr<PendingResponse>>> queue_ GUARDED_BY(mutex_);
  std::map<std::string, CachedResult> cache_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace berth::serve
