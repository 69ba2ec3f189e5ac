// Cancelling and releasing; see errand.h.
#include "top/action_thread.h"

#include <exception>
#include <fmt/format.h>
#include <utility>

#include "lease/cancel_release.h"

namespace berth::top {

Notice do_errand(const PendingAction& wish) {
  const bool cancels = wish.kind == PendingAction::Kind::cancel;
  try {
    const auto ended = cancels ? cancel_tickets({wish.id}) : release_leases({wish.id}, {});
    if (!ended) return {Style::bad, ended.error().message};
    if (ended->empty()) return {Style::notice, fmt::format("{} had ended already.", wish.id)};
  } catch (const std::exception& problem) {
    return {Style::bad, fmt::format("internal error: {}; please report it", problem.what())};
  }
  return {Style::good, cancels ? fmt::format("Ticket {} has left the queue.", wish.id)
                               : fmt::format("Lease {} is given back.", wish.id)};
}

ActionThread::~ActionThread() {
  if (thread_.joinable()) thread_.join();
}

void ActionThread::start(const PendingAction& wish) {
  thread_ = std::thread([this, wish] {
    Notice notice = do_errand(wish);
    {
      const MutexLock lock(mutex_);
      notice_ = std::move(notice);
    }
    done_();
  });
}

std::optional<Notice> ActionThread::result() {
  done_.clear();
  if (thread_.joinable()) thread_.join();
  const MutexLock lock(mutex_);
  return std::exchange(notice_, std::nullopt);
}

}  // namespace berth::top
