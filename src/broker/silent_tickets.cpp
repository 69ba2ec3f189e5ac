// The clocks of silent tickets; see silent_tickets.h.
#include "broker/silent_tickets.h"

#include <algorithm>

namespace berth {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A granted client normally claims within milliseconds.
constexpr seconds kSuspicious(1);
// It may have to start the driver first. Those further back wait a little longer, so that of
// several clients that notice the same silence the first one is the first to go on.
constexpr milliseconds kTimeToClaim(3500);
constexpr milliseconds kPerRank(200);
constexpr unsigned kMostRanks = 10;
constexpr seconds kPassedOver(60);
constexpr seconds kLongPause(5);
constexpr unsigned kMostDoublings = 6;

}  // namespace

bool SilentTickets::suspects(bool unclaimed, bool rung, Clock::time_point now) {
  // What happened in a longer pause (this process was stopped, too) is not known: begin anew.
  const bool paused = last_decision_ && now - *last_decision_ > kLongPause;
  last_decision_ = now;
  if (paused) {
    unclaimed_since_.reset();
    (void)pass_over({}, now);
  }
  if (!unclaimed) {
    unclaimed_since_.reset();
    (void)pass_over({}, now);
    return false;
  }
  if (!unclaimed_since_) unclaimed_since_ = now;
  return rung || now - *unclaimed_since_ >= kSuspicious;
}

bool SilentTickets::pass_over(const std::vector<std::string>& suspects, Clock::time_point now) {
  // A ticket that was granted nothing meanwhile was right not to claim: its time begins anew.
  for (auto& [id, ticket] : tickets_) {
    if (std::find(suspects.begin(), suspects.end(), id) == suspects.end()) ticket.rung.reset();
  }
  std::erase_if(tickets_,
                [](const auto& one) { return !one.second.rung && one.second.times == 0; });
  bool news = false;
  unsigned rank = 0;
  for (const std::string& id : suspects) {
    rank = std::min(rank + 1, kMostRanks);
    Ticket& ticket = tickets_[id];
    if (!ticket.rung) ticket.rung = now;
    if (now - *ticket.rung < kTimeToClaim + kPerRank * rank) continue;
    ticket.rung.reset();
    ticket.passed_until = now + kPassedOver * (1U << std::min(ticket.times, kMostDoublings));
    ++ticket.times;
    news = true;
  }
  return news;
}

bool SilentTickets::is_passed_over(const std::string& id, Clock::time_point now) const {
  const auto found = tickets_.find(id);
  return found != tickets_.end() && now < found->second.passed_until;
}

}  // namespace berth
