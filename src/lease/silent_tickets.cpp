// Timing of silent tickets; see silent_tickets.h.
#include "lease/silent_tickets.h"

#include <algorithm>
#include <set>

namespace berth {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A granted client normally claims within milliseconds.
constexpr seconds kUnclaimed(1);
// Clients further back than this begin later and decide less often: there may be a thousand of
// them, and each of their decisions reads the whole queue before them.
constexpr std::size_t kNear = 10;
constexpr milliseconds kUnclaimedFar(1500);
constexpr milliseconds kInterval(500);
constexpr milliseconds kIntervalFar(2000);
constexpr std::size_t kMostRung = 10;
// It may have to start the driver first.
constexpr milliseconds kTimeToClaim(3500);
constexpr seconds kPassedOver(60);
constexpr seconds kLongPause(5);
constexpr unsigned kMostDoublings = 6;

// Tickets further back have more time, so that of several clients that notice the same silence the
// first one goes on first. In all it takes less than 10 s, however many tickets are silent.
milliseconds time_to_claim(unsigned rank) {
  constexpr unsigned kLong = 10;
  constexpr unsigned kShort = 100;
  const unsigned long_steps = std::min(rank, kLong);
  const unsigned short_steps = std::min(rank - long_steps, kShort);
  return kTimeToClaim + milliseconds(200) * long_steps + milliseconds(10) * short_steps;
}

}  // namespace

bool SilentTickets::observe(bool unclaimed, bool rung, std::size_t position,
                            Clock::time_point now) {
  is_far_ = position > kNear;
  // This process may have been stopped, too.
  if (last_decision_ && now - *last_decision_ > kLongPause) forget_times();
  last_decision_ = now;
  if (!unclaimed) {
    unclaimed_since_.reset();
  } else if (!unclaimed_since_) {
    unclaimed_since_ = now;
  }
  if (!unclaimed_since_) return is_timing();
  const auto waited = now - *unclaimed_since_;
  return is_timing() || (is_far_ ? waited >= kUnclaimedFar : rung || waited >= kUnclaimed);
}

void SilentTickets::exclude(Clock::duration time) {
  if (last_decision_) *last_decision_ += time;
  if (unclaimed_since_) *unclaimed_since_ += time;
  for (auto& [id, ticket] : tickets_) {
    if (ticket.timed_since) *ticket.timed_since += time;
    ticket.ends += time;
  }
}

void SilentTickets::forget_times() {
  unclaimed_since_.reset();
  (void)time({}, {});
}

SilentTickets::Timing SilentTickets::time(const std::vector<Claimable>& claimable,
                                          Clock::time_point now) {
  std::set<std::string> ids;
  for (const Claimable& one : claimable) {
    if (!one.passed_over) ids.insert(one.id);
  }
  // A ticket that cannot claim is right not to: its time begins anew.
  for (auto& [id, ticket] : tickets_) {
    if (!ids.contains(id)) ticket.timed_since.reset();
  }
  std::erase_if(tickets_, [](const auto& one) {
    return !one.second.timed_since && !one.second.passed_over && one.second.times == 0;
  });
  Timing timing;
  unsigned rank = 0;
  for (const Claimable& one : claimable) {
    ++rank;  // also of those that are passed over: clients before this one may still wait for them
    if (one.passed_over) continue;
    Ticket& ticket = tickets_[one.id];
    const bool begins = !ticket.timed_since;
    if (begins || rank < ticket.rank) {
      // A ticket before it is gone, which its client may learn only now: it has a little time.
      const auto earliest = now - kTimeToClaim;
      ticket.timed_since = begins ? now : std::max(*ticket.timed_since, earliest);
      ticket.rank = rank;
      if (timing.ring.size() < kMostRung) timing.ring.push_back(one.id);
      timing.began = timing.began || begins;
    }
    ticket.ends = *ticket.timed_since + time_to_claim(rank);
    if (now < ticket.ends) continue;
    ticket.timed_since.reset();
    ticket.passed_over = true;
    ticket.tried_again_at = now + kPassedOver * (1U << std::min(ticket.times, kMostDoublings));
    ++ticket.times;
    timing.passed_over = true;
  }
  return timing;
}

bool SilentTickets::is_timing() const {
  return next_end().has_value();
}

bool SilentTickets::is_timed(const std::string& id) const {
  const auto found = tickets_.find(id);
  return found != tickets_.end() && found->second.timed_since;
}

std::optional<SilentTickets::Clock::time_point> SilentTickets::next_decision(
    Clock::time_point now) const {
  const auto end = next_end();
  if (!end) return std::nullopt;
  return std::min(now + (is_far_ ? kIntervalFar : kInterval), std::max(*end, now));
}

std::optional<SilentTickets::Clock::time_point> SilentTickets::next_end() const {
  std::optional<Clock::time_point> next;
  for (const auto& [id, ticket] : tickets_) {
    if (ticket.timed_since) next = std::min(next.value_or(ticket.ends), ticket.ends);
  }
  return next;
}

bool SilentTickets::is_passed_over(const std::string& id) const {
  const auto found = tickets_.find(id);
  return found != tickets_.end() && found->second.passed_over;
}

bool SilentTickets::try_again(const std::string& id, Clock::time_point now) {
  const auto found = tickets_.find(id);
  if (found == tickets_.end()) return true;
  Ticket& ticket = found->second;
  if (ticket.passed_over && now >= ticket.tried_again_at) ticket.passed_over = false;
  return !ticket.passed_over;
}

void SilentTickets::forget_unless(const std::function<bool(const std::string& id)>& is_queued) {
  std::erase_if(tickets_, [&](const auto& one) { return !is_queued(one.first); });
}

}  // namespace berth
