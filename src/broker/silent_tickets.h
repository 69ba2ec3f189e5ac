// Tickets that were granted GPUs and did not claim them, as one waiting client has seen it.
//
// A client that is frozen, or a hostile one, can be granted GPUs for ever without claiming them.
// Each waiting client watches the tickets before its own, and passes over those that stay silent.
// It believes only what it has seen itself: nothing of this is written down, where other users
// could forge it. docs/harbour-protocol.md has the rule.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace berth {

class SilentTickets {
 public:
  using Clock = std::chrono::steady_clock;

  // Call in every decision. `unclaimed`: a ticket before this one was granted GPUs and has not
  // claimed them. `rung`: this client was rung, so another one has waited for that ticket already.
  // True once the tickets before this one are suspected to be silent.
  bool suspects(bool unclaimed, bool rung, Clock::time_point now);

  // These tickets, in their order, would be granted GPUs if those before them were silent; they
  // were rung just now. True if some have had their time and are passed over from now on.
  bool pass_over(const std::vector<std::string>& suspects, Clock::time_point now);

  // It is passed over for a minute, and for longer each time that it happens again.
  bool is_passed_over(const std::string& id, Clock::time_point now) const;

 private:
  struct Ticket {
    std::optional<Clock::time_point> rung;  // first, since it was last passed over
    Clock::time_point passed_until{};
    unsigned times = 0;  // that it was passed over
  };
  std::map<std::string, Ticket> tickets_;
  std::optional<Clock::time_point> last_decision_;
  std::optional<Clock::time_point> unclaimed_since_;
};

}  // namespace berth
