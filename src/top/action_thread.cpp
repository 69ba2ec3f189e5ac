// Cancels tickets and releases leases in a thread; see action_thread.h.
#include "top/action_thread.h"

#include <exception>
#include <fmt/format.h>
#include <utility>

#include "lease/cancel_and_release.h"
#include "run/cancel.h"

namespace berth::top {

namespace {

Notice end_job(const std::string& id) {
  CancelSelection selection;
  selection.ids = {id};
  const auto ended = cancel(selection, kDefaultGrace);
  if (!ended) return {Style::bad, ended.error().message};
  const CancelledJob& job = ended->front();
  return {is_done(job) ? Style::good : Style::bad, describe_end(job, kDefaultGrace)};
}

}  // namespace

Notice run_action(const PendingAction& action) {
  const bool cancels = action.kind == PendingAction::Kind::cancel;
  try {
    if (action.kind == PendingAction::Kind::end_job) return end_job(action.id);
    const auto ended = cancels ? cancel_tickets({action.id}) : release_leases({action.id}, {});
    if (!ended) return {Style::bad, ended.error().message};
    if (ended->empty()) {
      return {Style::notice,
              fmt::format("{} {} had already ended.", cancels ? "Ticket" : "Lease", action.id)};
    }
  } catch (const std::exception& problem) {
    return {Style::bad, fmt::format("internal error: {}; please report it", problem.what())};
  }
  return {Style::good, cancels ? fmt::format("Ticket {} was cancelled.", action.id)
                               : fmt::format("Lease {} was released.", action.id)};
}

ActionThread::~ActionThread() {
  if (thread_.joinable()) thread_.join();
}

void ActionThread::start(const PendingAction& action) {
  thread_ = std::thread([this, action] {
    Notice notice = run_action(action);
    {
      const MutexLock lock(mutex_);
      notice_ = std::move(notice);
    }
    done_.notify();
  });
}

std::optional<Notice> ActionThread::result() {
  done_.clear();
  if (thread_.joinable()) thread_.join();
  const MutexLock lock(mutex_);
  return std::exchange(notice_, std::nullopt);
}

}  // namespace berth::top
