// The thread of a desk; see desk.h.
#include "serve/work_queue.h"

#include <exception>
#include <fmt/format.h>
#include <utility>

namespace berth {
namespace {

constexpr std::size_t kMostWaiting = 16;
constexpr std::size_t kMostRemembered = 8;
constexpr std::chrono::seconds kFresh(3);

// At the edge of a thread: what nobody expected is an answer, too.
HttpAnswer done(const WorkQueue::Work& work) {
  try {
    return work();
  } catch (const std::exception& problem) {
    return error_answer(503, fmt::format("internal error: {}", problem.what()));
  }
}

}  // namespace

WorkQueue::WorkQueue(std::function<void()> on_done)
    : on_done_(std::move(on_done)), thread_([this] { run(); }) {}

WorkQueue::~WorkQueue() {
  {
    const MutexLock lock(mutex_);
    ends_ = true;
  }
  more_.notify_all();
  thread_.join();
}

SharedPending WorkQueue::put(Work work) {
  if (todo_.size() >= kMostWaiting) return nullptr;
  auto slip = std::make_shared<Pending>();
  todo_.emplace_back(std::move(work), slip);
  more_.notify_all();
  return slip;
}

SharedPending WorkQueue::give(Work work) {
  const MutexLock lock(mutex_);
  return put(std::move(work));
}

SharedPending WorkQueue::ask(const std::string& question, Work work) {
  const MutexLock lock(mutex_);
  const auto now = Clock::now();
  forget_old(now);
  if (const auto found = asked_.find(question); found != asked_.end()) return found->second.slip;
  SharedPending slip = put(std::move(work));
  if (slip && asked_.size() < kMostRemembered) asked_[question] = {slip, now};
  return slip;
}

void WorkQueue::outdate() {
  const MutexLock lock(mutex_);
  asked_.clear();  // also of those at hand: they may have read too early
}

// One that is yet to be done is as fresh as can be, however long ago it was asked.
void WorkQueue::forget_old(Clock::time_point now) {
  std::erase_if(asked_, [&](const auto& one) {
    return now - one.second.since > kFresh && one.second.slip->answer();
  });
}

void WorkQueue::run() {
  MutexLock lock(mutex_);
  for (;;) {
    while (!ends_ && todo_.empty()) more_.wait(mutex_);
    if (ends_) return;
    const auto [work, slip] = std::move(todo_.front());
    todo_.pop_front();
    lock.unlock();
    slip->fill(done(work));
    on_done_();
    lock.lock();
  }
}

}  // namespace berth
