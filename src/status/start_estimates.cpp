// Simulates the queue from one expected end to the next; see start_estimates.h.
#include "status/start_estimates.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace berth {
namespace {

constexpr std::size_t kMaxSimulatedTickets = 64;
constexpr std::size_t kMaxSimulatedLeases = 256;
constexpr int kMaxSteps = 128;
// Times do not overflow: a simulation ends when so much time has passed.
constexpr std::chrono::nanoseconds kMaxRunTime = std::chrono::hours(24 * 365 * 50);

// Turns the tickets that are granted now into leases, and removes them from the queue. Returns
// their ids.
std::vector<std::string> start_granted_tickets(PlanInput& input) {
  std::vector<std::string> started;
  std::vector<QueuedTicket> waiting;
  std::vector<HeldLease> granted;
  Planner planner(input);
  for (const QueuedTicket& ticket : input.tickets) {
    const Outcome outcome = planner.decide(ticket, Planner::Explain::no);
    if (!outcome.grant) {
      waiting.push_back(ticket);
      continue;
    }
    HeldLease lease{ticket.id, outcome.grant->uuids, ticket.request.memory,
                    {},        std::nullopt,         ticket.profiled_job};
    if (ticket.request.time) lease.ends = input.now + std::min(*ticket.request.time, kMaxRunTime);
    granted.push_back(std::move(lease));
    started.push_back(ticket.id);
  }
  input.tickets = std::move(waiting);
  std::move(granted.begin(), granted.end(), std::back_inserter(input.leases));
  return started;
}

// A lease may name any number of GPUs that this host does not have.
void remove_unknown_gpus(PlanInput& input) {
  std::set<std::string_view> known;
  for (const GpuCondition& gpu : input.gpus) known.insert(gpu.uuid);
  for (HeldLease& lease : input.leases) {
    std::erase_if(lease.uuids, [&](const std::string& uuid) { return !known.contains(uuid); });
  }
  std::erase_if(input.leases, [](const HeldLease& lease) {
    return lease.uuids.empty() && lease.profiled_job.empty();
  });
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
  remove_unknown_gpus(input);
  if (input.leases.size() > kMaxSimulatedLeases) return starts;
  if (input.tickets.size() > kMaxSimulatedTickets) input.tickets.resize(kMaxSimulatedTickets);
  std::map<std::string, std::size_t> positions;
  for (std::size_t i = 0; i < input.tickets.size(); ++i) positions[input.tickets[i].id] = i;
  // An overdue lease may end at any moment, so its end is unknown.
  for (HeldLease& lease : input.leases) {
    if (lease.ends && *lease.ends <= input.now) lease.ends.reset();
  }
  const TimePoint last = input.now + kMaxRunTime;
  start_granted_tickets(input);
  for (int step = 0; step < kMaxSteps && !input.tickets.empty() && input.now <= last; ++step) {
    if (!advance_to_next_end(input)) {
      for (Outcome& outcome : plan(input))
        starts[positions[outcome.ticket]].last_wait = std::move(outcome.wait);
      break;
    }
    for (const std::string& id : start_granted_tickets(input))
      starts[positions[id]].time = input.now;
  }
  return starts;
}

}  // namespace berth
