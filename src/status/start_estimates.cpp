// Simulates the queue from one expected end to the next; see start_estimates.h.
#include "status/start_estimates.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <utility>

namespace berth {
namespace {

constexpr std::size_t kMaxSimulatedTickets = 64;
constexpr std::size_t kMaxSimulatedLeases = 256;
constexpr int kMaxSteps = 128;
constexpr std::chrono::nanoseconds kMaxRunTime = std::chrono::hours(24 * 365 * 100);

struct SimulationStep {
  std::vector<std::string> started;  // ids of tickets
  std::vector<Outcome> waiting;      // the outcomes of the other tickets
};

// Turns the tickets that are granted now into leases, and removes them from the queue.
SimulationStep start_granted_tickets(PlanInput& input) {
  SimulationStep step;
  std::vector<QueuedTicket> waiting;
  std::vector<Outcome> outcomes = plan(input);
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    const QueuedTicket& ticket = input.tickets[i];
    if (!outcomes[i].grant) {
      waiting.push_back(ticket);
      step.waiting.push_back(std::move(outcomes[i]));
      continue;
    }
    HeldLease lease{ticket.id,    outcomes[i].grant->uuids, ticket.request.memory, {},
                    std::nullopt, ticket.profiled_job};
    if (ticket.request.time) lease.ends = input.now + std::min(*ticket.request.time, kMaxRunTime);
    input.leases.push_back(std::move(lease));
    step.started.push_back(ticket.id);
  }
  input.tickets = std::move(waiting);
  return step;
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

std::vector<StartEstimate> estimate_starts(PlanInput input) {
  std::vector<StartEstimate> starts(input.tickets.size());
  if (input.leases.size() > kMaxSimulatedLeases) return starts;
  if (input.tickets.size() > kMaxSimulatedTickets) input.tickets.resize(kMaxSimulatedTickets);
  std::map<std::string, std::size_t> positions;
  for (std::size_t i = 0; i < input.tickets.size(); ++i) positions[input.tickets[i].id] = i;
  // An overdue lease may end at any moment, so its end is unknown.
  for (HeldLease& lease : input.leases) {
    if (lease.ends && *lease.ends <= input.now) lease.ends.reset();
  }
  SimulationStep last = start_granted_tickets(input);
  bool has_next_end = true;
  for (int step = 0; step < kMaxSteps && !input.tickets.empty(); ++step) {
    has_next_end = advance_to_next_end(input);
    if (!has_next_end) break;
    last = start_granted_tickets(input);
    for (const std::string& id : last.started) starts[positions[id]].time = input.now;
  }
  if (has_next_end) return starts;
  for (Outcome& outcome : last.waiting)
    starts[positions[outcome.ticket]].last_wait = std::move(outcome.wait);
  return starts;
}

}  // namespace berth
