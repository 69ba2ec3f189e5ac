// Tickets that could claim GPUs and do not, as one waiting client has observed them.
//
// A frozen or hostile client can be granted GPUs for ever without claiming them. Each waiting
// client times the tickets before its own that could claim, and passes over those that do not. It
// uses only its own observations: nothing of this is written to the harbour, where other users
// could forge it. docs/harbour-protocol.md ("Silent tickets") has the rule.
//
// A suspect is a ticket that is granted GPUs and that this client, or the client that rang it, has
// waited for. In a busy queue some ticket is unclaimed at every decision, but it is not the same
// one for long, and so it is not a suspect.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace berth {

class SilentTickets {
 public:
  using Clock = std::chrono::steady_clock;

  // How long a client leaves a granted ticket alone before it times it: a granted client normally
  // claims within milliseconds.
  static constexpr std::chrono::seconds kClaimGracePeriod{1};

  // A ticket before this client's that could claim GPUs if the tickets before it were silent.
  struct Claimable {
    std::string id;
    bool passed_over = false;  // already, because it is stopped or was silent
  };

  struct TimingResult {
    // At most 10 tickets that are timed from now on, or whose rank has improved.
    std::vector<std::string> ids_to_ring;
    bool started = false;      // some tickets are timed from now on
    bool passed_over = false;  // some tickets are passed over from now on
  };

  // Call first in every decision. `unclaimed`: ids of the tickets before this client's that are
  // granted GPUs and have not claimed them. `rung`: this client was rung, so another client may
  // have waited for those tickets already. `position`: of this client in the queue. Clients far
  // back begin later, since the clients before them normally claim first. Returns true when it is
  // time to call time_tickets(): tickets are timed already, or there is a suspect.
  bool observe(const std::set<std::string>& unclaimed, bool rung, std::size_t position,
               Clock::time_point now);

  // Excludes a time during which no client could claim, since a process held the harbour's lock.
  void exclude_time(Clock::duration time);

  // Begins all times anew: this client does not know what happened since its last decision.
  void reset_times();

  // Times the tickets `claimable`, which are in the order of the queue, and no others.
  TimingResult time_tickets(const std::vector<Claimable>& claimable, Clock::time_point now);

  // False if each suspect has claimed, or can no longer claim, and none was passed over: then the
  // others that are timed are probably not silent either.
  bool has_suspect(const std::vector<Claimable>& claimable) const;

  bool is_timing() const;
  bool is_timed(const std::string& id) const;
  // When to decide again; nothing if no ticket is timed. At regular intervals, to notice tickets
  // that claim or no longer can, and at the time when the next ticket is passed over.
  std::optional<Clock::time_point> next_decision(Clock::time_point now) const;

  bool is_passed_over(const std::string& id) const;
  // Call for a ticket that is passed over and could claim now. Gives it another chance a minute
  // after it was passed over, and after twice the time whenever that happens again. True if the
  // ticket is no longer passed over.
  bool retry_if_due(const std::string& id, Clock::time_point now);

  // Forgets the tickets that have left the queue.
  void forget_tickets_unless(const std::function<bool(const std::string& id)>& is_queued);

 private:
  struct TimedTicket {
    std::optional<Clock::time_point> timed_since;
    Clock::time_point claim_deadline{};  // meaningful while timed_since is set
    unsigned rank = 0;                   // among the claimable tickets, when it was last rung
    bool passed_over = false;
    Clock::time_point retry_at{};  // meaningful while passed_over is set
    unsigned times_passed_over = 0;
  };
  std::optional<Clock::time_point> next_claim_deadline() const;

  std::map<std::string, TimedTicket> tickets_;
  bool is_far_back_ = false;
  std::optional<Clock::time_point> last_decision_;
  std::map<std::string, Clock::time_point> unclaimed_since_;  // by the id of the ticket
  std::set<std::string> suspects_;                            // ids
  bool has_passed_over_ = false;  // a ticket was passed over after timing began
};

}  // namespace berth
