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

namespace berth {

// An answer that is there, or yet to come.
class Pending {
 public:
  std::optional<HttpAnswer> answer() const {
    const MutexLock lock(mutex_);
    return answer_;
  }
  void fill(HttpAnswer answer) {
    const MutexLock lock(mutex_);
    answer_ = std::move(answer);
  }

 private:
  mutable Mutex mutex_;
  std::optional<HttpAnswer> answer_ GUARDED_BY(mutex_);
};
using SharedPending = std::shared_ptr<const Pending>;

class WorkQueue {
 public:
  using Clock = std::chrono::steady_clock;
  using Work = std::function<HttpAnswer()>;

  // `on_done` is called in the desk's thread whenever a slip was filled.
  explicit WorkQueue(std::function<void()> on_done);
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;
  // Waits for the work at hand; what is behind it is not done.
  ~WorkQueue();

  // Null if there is too much to do already.
  SharedPending give(Work work);
  // The same, unless an answer to the same question is there that is not too old, or comes.
  SharedPending ask(const std::string& question, Work work);
  // Answers that are there already are too old from now on.
  void outdate();

 private:
  struct Asked {
    SharedPending slip;
    Clock::time_point since;
  };
  SharedPending put(Work work) REQUIRES(mutex_);
  void forget_old(Clock::time_point now) REQUIRES(mutex_);
  void run();

  std::function<void()> on_done_;
  Mutex mutex_;
  Condition more_;
  std::deque<std::pair<Work, std::shared_ptr<Pending>>> todo_ GUARDED_BY(mutex_);
  std::map<std::string, Asked> asked_ GUARDED_BY(mutex_);
  bool ends_ GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace berth
