// Times the tickets that could claim GPUs and do not; see silent_tickets.h.
#include "lease/silent_tickets.h"

#include <algorithm>
#include <set>

namespace berth {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Clients further back than this begin later and decide less often: there may be a thousand of
// them, and each of their decisions reads all tickets before their own.
constexpr std::size_t kNearFrontPositions = 10;
constexpr milliseconds kClaimGracePeriodFarBack(1500);
constexpr milliseconds kDecisionInterval(500);
constexpr milliseconds kDecisionIntervalFarBack(2000);
constexpr std::size_t kMaxRung = 10;
// A granted client may have to start the driver first.
constexpr milliseconds kTimeToClaim(3500);
constexpr seconds kPassedOverTime(60);
// After a longer pause between two decisions all times begin anew.
constexpr seconds kMaxDecisionGap(5);
constexpr unsigned kMaxDoublings = 6;  // of kPassedOverTime

// Tickets further back have more time, so that of several clients that notice the same silent
// ticket the first in the queue claims first. All of it takes less than 10 s, however many are
// silent.
milliseconds time_to_claim(unsigned rank) {
  constexpr unsigned kLongSteps = 10;
  constexpr unsigned kShortSteps = 100;
  const unsigned long_steps = std::min(rank, kLongSteps);
  const unsigned short_steps = std::min(rank - long_steps, kShortSteps);
  return kTimeToClaim + milliseconds(200) * long_steps + milliseconds(10) * short_steps;
}

}  // namespace

bool SilentTickets::observe(const std::set<std::string>& unclaimed, bool rung, std::size_t position,
                            Clock::time_point now) {
  is_far_back_ = position > kNearFrontPositions;
  // This process itself may have been stopped.
  if (last_decision_ && now - *last_decision_ > kMaxDecisionGap) reset_times();
  last_decision_ = now;
  std::erase_if(unclaimed_since_, [&](const auto& one) { return !unclaimed.contains(one.first); });
  for (const std::string& id : unclaimed) unclaimed_since_.try_emplace(id, now);
  if (!is_timing()) suspects_.clear();
  const milliseconds grace_period = is_far_back_ ? kClaimGracePeriodFarBack : kClaimGracePeriod;
  for (const auto& [id, since] : unclaimed_since_) {
    if (now - since >= grace_period || (rung && !is_far_back_)) suspects_.insert(id);
  }
  return is_timing() || !suspects_.empty();
}

void SilentTickets::exclude_time(Clock::duration time) {
  if (last_decision_) *last_decision_ += time;
  for (auto& [id, since] : unclaimed_since_) since += time;
  for (auto& [id, ticket] : tickets_) {
    if (ticket.timed_since) *ticket.timed_since += time;
    ticket.claim_deadline += time;
  }
}

void SilentTickets::reset_times() {
  unclaimed_since_.clear();
  (void)time_tickets({}, {});
}

SilentTickets::TimingResult SilentTickets::time_tickets(const std::vector<Claimable>& claimable,
                                                        Clock::time_point now) {
  std::set<std::string> ids;
  for (const Claimable& one : claimable) {
    if (!one.passed_over) ids.insert(one.id);
  }
  std::erase_if(suspects_, [&](const std::string& id) { return !ids.contains(id); });
  // The time of a ticket that could not claim for a while begins anew.
  for (auto& [id, ticket] : tickets_) {
    if (!ids.contains(id)) ticket.timed_since.reset();
  }
  std::erase_if(tickets_, [](const auto& one) {
    return !one.second.timed_since && !one.second.passed_over && one.second.times_passed_over == 0;
  });
  TimingResult timing;
  unsigned rank = 0;
  for (const Claimable& one : claimable) {
    // Tickets that are passed over count, too: other clients may still wait for them.
    ++rank;
    if (one.passed_over) continue;
    TimedTicket& ticket = tickets_[one.id];
    const bool begins = !ticket.timed_since;
    if (begins || rank < ticket.rank) {
      // If a ticket before this one is gone, its client may notice that only now. So its time ends
      // no earlier than if it had begun kTimeToClaim ago.
      const auto earliest = now - kTimeToClaim;
      ticket.timed_since = begins ? now : std::max(*ticket.timed_since, earliest);
      ticket.rank = rank;
      if (timing.ids_to_ring.size() < kMaxRung) timing.ids_to_ring.push_back(one.id);
      timing.started = timing.started || begins;
    }
    ticket.claim_deadline = *ticket.timed_since + time_to_claim(rank);
    if (now < ticket.claim_deadline) continue;
    ticket.timed_since.reset();
    ticket.passed_over = true;
    ticket.retry_at =
        now + kPassedOverTime * (1U << std::min(ticket.times_passed_over, kMaxDoublings));
    ++ticket.times_passed_over;
    timing.passed_over = true;
  }
  has_passed_over_ = (has_passed_over_ || timing.passed_over) && is_timing();
  return timing;
}

bool SilentTickets::has_suspect(const std::vector<Claimable>& claimable) const {
  return has_passed_over_ ||
         std::any_of(claimable.begin(), claimable.end(), [&](const Claimable& one) {
           return !one.passed_over && suspects_.contains(one.id);
         });
}

bool SilentTickets::is_timing() const {
  return next_claim_deadline().has_value();
}

bool SilentTickets::is_timed(const std::string& id) const {
  const auto found = tickets_.find(id);
  return found != tickets_.end() && found->second.timed_since;
}

std::optional<SilentTickets::Clock::time_point> SilentTickets::next_decision(
    Clock::time_point now) const {
  const auto end = next_claim_deadline();
  if (!end) return std::nullopt;
  return std::min(now + (is_far_back_ ? kDecisionIntervalFarBack : kDecisionInterval),
                  std::max(*end, now));
}

std::optional<SilentTickets::Clock::time_point> SilentTickets::next_claim_deadline() const {
  std::optional<Clock::time_point> next;
  for (const auto& [id, ticket] : tickets_) {
    if (ticket.timed_since)
      next = std::min(next.value_or(ticket.claim_deadline), ticket.claim_deadline);
  }
  return next;
}

bool SilentTickets::is_passed_over(const std::string& id) const {
  const auto found = tickets_.find(id);
  return found != tickets_.end() && found->second.passed_over;
}

bool SilentTickets::retry_if_due(const std::string& id, Clock::time_point now) {
  const auto found = tickets_.find(id);
  if (found == tickets_.end()) return true;
  TimedTicket& ticket = found->second;
  if (ticket.passed_over && now >= ticket.retry_at) ticket.passed_over = false;
  return !ticket.passed_over;
}

void SilentTickets::forget_tickets_unless(
    const std::function<bool(const std::string& id)>& is_queued) {
  std::erase_if(tickets_, [&](const auto& one) { return !is_queued(one.first); });
}

}  // namespace berth
