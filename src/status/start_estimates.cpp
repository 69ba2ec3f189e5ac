// Simulates the queue from one expected end to the next; see start_estimates.h.
#include "status/start_estimates.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <string>

namespace berth {
namespace {

constexpr std::size_t kMaxSimulatedTickets = 64;
constexpr std::size_t kMaxSimulatedLeases = 256;
constexpr int kMaxSteps = 128;
constexpr std::chrono::nanoseconds kMaxRunTime = std::chrono::hours(24 * 365 * 100);

// Turns the tickets that are granted now into leases, and removes them from the queue. Returns
// their ids.
std::vector<std::string> start_granted_tickets(PlanInput& input) {
  std::vector<std::string> started;
  std::vector<QueuedTicket> waiting;
  const std::vector<Outcome> outcomes = plan(input);
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    const QueuedTicket& ticket = input.tickets[i];
    if (!outcomes[i].grant) {
      waiting.push_back(ticket);
      continue;
    }
    HeldLease lease{ticket.id,    outcomes[i].grant->uuids, ticket.request.memory, {},
                    std::nullopt, ticket.profiled_job};
    if (ticket.request.time) lease.ends = input.now + std::min(*ticket.request.time, kMaxRunTime);
    input.leases.push_back(std::move(lease));
    started.push_back(ticket.id);
  }
  input.tickets = std::move(waiting);
  return started;
}

// Moves the time to the next expected end, and removes the leases that end then. False if there is
// none.
bool advance_to_next_end(PlanInput& input) {
  std::optional<TimePoint> next;
  for (const HeldLease& lease : input.leases) {
    if (lease.ends && *lease.ends > input.now && (!next || *lease.ends < *next)) next = lease.ends;
  }
  if (!next) return false;
  std::erase_if(input.leases, [&](const HeldLease& lease) { return lease.ends == next; });
  input.now = *next;
  return true;
}

}  // namespace

std::vector<std::optional<TimePoint>> estimate_starts(PlanInput input) {
  std::vector<std::optional<TimePoint>> starts(input.tickets.size());
  if (input.leases.size() > kMaxSimulatedLeases) return starts;
  if (input.tickets.size() > kMaxSimulatedTickets) input.tickets.resize(kMaxSimulatedTickets);
  std::map<std::string, std::size_t> positions;
  for (std::size_t i = 0; i < input.tickets.size(); ++i) positions[input.tickets[i].id] = i;
  // An overdue lease may end at any moment, so its end is unknown.
  for (HeldLease& lease : input.leases) {
    if (lease.ends && *lease.ends <= input.now) lease.ends.reset();
  }
  start_granted_tickets(input);
  for (int step = 0; step < kMaxSteps && !input.tickets.empty(); ++step) {
    if (!advance_to_next_end(input)) break;
    for (const std::string& id : start_granted_tickets(input)) starts[positions[id]] = input.now;
  }
  return starts;
}

}  // namespace berth
