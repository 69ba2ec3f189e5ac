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
class Slip {
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
using SharedSlip = std::shared_ptr<const Slip>;

class Desk {
 public:
  using Clock = std::chrono::steady_clock;
  using Work = std::function<HttpAnswer()>;

  // `on_done` is called in the desk's thread whenever a slip was filled.
  explicit Desk(std::function<void()> on_done);
  Desk(const Desk&) = delete;
  Desk& operator=(const Desk&) = delete;
  // Waits for the work at hand; what is behind it is not done.
  ~Desk();

  // Null if there is too much to do already.
  SharedSlip give(Work work);
  // The same, unless an answer to the same question is there that is not too old, or comes.
  SharedSlip ask(const std::string& question, Work work);
  // Answers that are there already are too old from now on.
  void outdate();

 private:
  struct Asked {
    SharedSlip slip;
    Clock::time_point since;
  };
  SharedSlip put(Work work) REQUIRES(mutex_);
  void forget_old(Clock::time_point now) REQUIRES(mutex_);
  void run();

  std::function<void()> on_done_;
  Mutex mutex_;
  Condition more_;
  std::deque<std::pair<Work, std::shared_ptr<Slip>>> todo_ GUARDED_BY(mutex_);
  std::map<std::string, Asked> asked_ GUARDED_BY(mutex_);
  bool ends_ GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace berth
