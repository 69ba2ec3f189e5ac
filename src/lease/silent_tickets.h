// Tickets that could claim GPUs and do not, as one waiting client has observed them.
//
// A frozen or hostile client can be granted GPUs for ever without claiming them. Each waiting
// client times the tickets before its own that could claim, and passes over those that do not. It
// uses only its own observations: nothing of this is written to the harbour, where other users
// could forge it. docs/harbour-protocol.md ("Silent tickets") has the rule.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace berth {

class SilentTickets {
 public:
  using Clock = std::chrono::steady_clock;

  // A ticket before this client's that could claim GPUs if the tickets before it were silent.
  struct Claimable {
    std::string id;
    bool passed_over = false;  // already: it is stopped, or was silent
  };

  struct TimingResult {
    std::vector<std::string> ids_to_ring;  // ids: timed from now on, or first in line by now; few
    bool started = false;                  // some are timed from now on
    bool passed_over = false;              // some are passed over from now on
  };

  // Call first in every decision. `unclaimed`: a ticket before this client's was granted GPUs and
  // has not claimed them. `rung`: this client was rung, so another one has waited for that ticket
  // already. `position`: of this client; those far back begin later, since the ones before them
  // normally go on first. True: it is time to call time_tickets().
  bool observe(bool unclaimed, bool rung, std::size_t position, Clock::time_point now);

  // No client could claim for so long, since a process kept the harbour's lock.
  void exclude_time(Clock::duration time);

  // What happened since the last decision is not known: all times begin anew.
  void reset_times();

  // `claimable` in the order of the queue. Stops timing all other tickets.
  TimingResult time_tickets(const std::vector<Claimable>& claimable, Clock::time_point now);

  bool is_timing() const;
  bool is_timed(const std::string& id) const;
  // When to decide again: often, so that a ticket that claims or cannot claim is noticed, and when
  // the next one is passed over.
  std::optional<Clock::time_point> next_decision(Clock::time_point now) const;

  bool is_passed_over(const std::string& id) const;
  // A ticket that is passed over, and could claim now, is given another chance after a minute, and
  // later each time. True if it is no longer passed over.
  bool retry_if_due(const std::string& id, Clock::time_point now);

  // Drops what is known of tickets that have left the queue.
  void forget_tickets_unless(const std::function<bool(const std::string& id)>& is_queued);

 private:
  struct TimedTicket {
    std::optional<Clock::time_point> timed_since;
    Clock::time_point claim_deadline{};  // of its time to claim
    unsigned rank = 0;                   // among the claimable tickets, when it was last rung
    bool passed_over = false;
    Clock::time_point retry_at{};
    unsigned times_passed_over = 0;  // that it was passed over
  };
  std::optional<Clock::time_point> next_claim_deadline() const;

  std::map<std::string, TimedTicket> tickets_;
  bool is_far_back_ = false;
  std::optional<Clock::time_point> last_decision_;
  std::optional<Clock::time_point> unclaimed_since_;
};

}  // namespace berth
