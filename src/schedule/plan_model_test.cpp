// Tests of the invariants of plan() with random servers, leases and queues.
//
// Most invariants (I1, I2, I4, I8, I9 of the design) concern one decision. I5 needs time: a server
// is simulated twice, with and without the tickets behind the first, and the first ticket must
// start no later with them.
#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <rapidcheck/gtest.h>
#include <set>

#include "schedule/plan.h"

namespace berth {
namespace {

using std::chrono::seconds;

const TimePoint kStart{seconds(1'000'000)};
constexpr std::uint64_t kCardGib = 24;

rc::Gen<std::optional<Bytes>> random_memory() {
  return rc::gen::map(rc::gen::inRange(0, 16), [](int gib_wanted) {
    // A third of the requests are exclusive.
    return gib_wanted < 5 ? std::nullopt
                          : std::optional(gib(static_cast<std::uint64_t>(gib_wanted - 4)));
  });
}

QueuedTicket random_ticket(int number, int gpus) {
  QueuedTicket ticket;
  ticket.id = "ticket " + std::to_string(number);
  ticket.request.count = static_cast<unsigned>(*rc::gen::inRange(1, gpus + 1));
  ticket.request.memory = *random_memory();
  ticket.request.policy = *rc::gen::element(Policy::spread, Policy::pack, Policy::random);
  if (*rc::gen::arbitrary<bool>()) ticket.request.time = seconds(*rc::gen::inRange(1, 30));
  if (*rc::gen::inRange(0, 4) == 0) ticket.request.name = *rc::gen::element("fast", "slow");
  return ticket;
}

PlanInput random_server(int gpus) {
  PlanInput input;
  input.now = kStart;
  input.seed = *rc::gen::arbitrary<std::uint64_t>();
  for (int i = 0; i < gpus; ++i) {
    GpuCondition gpu;
    gpu.uuid = "gpu " + std::to_string(i);
    gpu.name = *rc::gen::element("fast card", "slow card");
    gpu.memory = gib(kCardGib);
    gpu.utilization_pct = gpu.memory_utilization_pct = 0;
    input.gpus.push_back(gpu);
  }
  return input;
}

// Each lease comes from a grant, so that it fits on its GPUs.
void add_random_leases(PlanInput& input, std::map<std::string, TimePoint>& actual_ends) {
  const int count = *rc::gen::inRange(0, 8);
  for (int i = 0; i < count; ++i) {
    PlanInput alone = input;
    alone.tickets = {random_ticket(1000 + i, static_cast<int>(input.gpus.size()))};
    const Outcome outcome = plan(alone).front();
    if (!outcome.grant) continue;
    HeldLease lease;
    lease.id = "lease " + std::to_string(i);
    lease.uuids = outcome.grant->uuids;
    lease.memory = alone.tickets[0].request.memory;
    const TimePoint end = input.now + seconds(*rc::gen::inRange(1, 30));
    if (*rc::gen::arbitrary<bool>()) lease.ends = end;
    actual_ends[lease.id] = end;
    input.leases.push_back(lease);
  }
}

// The shares of one GPU after the decision: those of the leases and of the grants.
struct GpuShares {
  std::vector<std::optional<Bytes>> shares;
};

std::map<std::string, GpuShares> shares_after(const PlanInput& input,
                                              const std::vector<Outcome>& outcomes) {
  std::map<std::string, GpuShares> gpu_shares;
  for (const HeldLease& lease : input.leases) {
    for (const std::string& uuid : lease.uuids) gpu_shares[uuid].shares.push_back(lease.memory);
  }
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    if (!outcomes[i].grant) continue;
    for (const std::string& uuid : outcomes[i].grant->uuids) {
      gpu_shares[uuid].shares.push_back(input.tickets[i].request.memory);
    }
  }
  return gpu_shares;
}

bool is_same_request(const Request& a, const Request& b) {
  return a.count == b.count && a.memory == b.memory && a.name == b.name && a.time == b.time;
}

RC_GTEST_PROP(PlanModel, keeps_the_invariants_of_one_decision, ()) {
  const int gpus = *rc::gen::inRange(1, 6);
  PlanInput input = random_server(gpus);
  std::map<std::string, TimePoint> ends;
  add_random_leases(input, ends);
  std::set<std::string> unusable;
  for (GpuCondition& gpu : input.gpus) {
    gpu.usable = *rc::gen::inRange(0, 6) != 0;
    if (!gpu.usable) unusable.insert(gpu.uuid);
  }
  const int tickets = *rc::gen::inRange(1, 8);
  for (int i = 0; i < tickets; ++i) {
    input.tickets.push_back(random_ticket(i, gpus));
    input.tickets.back().stopped = *rc::gen::inRange(0, 8) == 0;
  }
  const auto outcomes = plan(input);
  RC_ASSERT(outcomes.size() == input.tickets.size());

  for (const auto& [uuid, gpu_shares] : shares_after(input, outcomes)) {
    std::uint64_t sum = 0;
    bool whole = false;
    for (const auto& share : gpu_shares.shares) {
      whole = whole || !share;
      sum += share ? share->count : 0;
    }
    RC_ASSERT(!whole || gpu_shares.shares.size() == 1);  // I1
    RC_ASSERT(sum <= gib(kCardGib).count);               // I2
  }
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    const Outcome& outcome = outcomes[i];
    RC_ASSERT(
        outcome.grant.has_value() + outcome.wait.has_value() + outcome.impossible.has_value() == 1);
    if (outcome.grant) {
      const auto& uuids = outcome.grant->uuids;
      const std::set<std::string> distinct(uuids.begin(), uuids.end());
      RC_ASSERT(distinct.size() == input.tickets[i].request.count);  // I8
      RC_ASSERT(!input.tickets[i].stopped);
      for (const std::string& uuid : uuids) RC_ASSERT(!unusable.contains(uuid));  // I9
    }
    for (std::size_t j = 0; j < i && outcome.grant; ++j) {  // I4
      const bool overtaken = outcomes[j].wait && !input.tickets[j].stopped &&
                             is_same_request(input.tickets[i].request, input.tickets[j].request);
      RC_ASSERT(!overtaken);
    }
    if (outcome.wait) RC_ASSERT(!outcome.wait->blockers.empty() || outcome.wait->passed_over);
  }
}

std::string describe_outcome(const Outcome& outcome) {
  if (outcome.impossible) return "impossible";
  if (outcome.wait) return "wait";
  std::string text;
  for (const std::string& uuid : outcome.grant->uuids) text += uuid + " ";
  return text;
}

// Explain::no takes shortcuts. They must not change the decision.
void expect_the_same_unexplained() {
  const int gpus = *rc::gen::inRange(1, 6);
  PlanInput input = random_server(gpus);
  std::map<std::string, TimePoint> ends;
  add_random_leases(input, ends);
  for (GpuCondition& gpu : input.gpus) {
    gpu.usable = *rc::gen::inRange(0, 6) != 0;
    gpu.strangers = *rc::gen::inRange(0, 4) == 0 ? 1 : 0;
    if (gpu.strangers > 0) gpu.strangers_memory = gib(*rc::gen::inRange<std::uint64_t>(1, 25));
    if (*rc::gen::inRange(0, 8) == 0) gpu.memory.reset();
  }
  const int tickets = *rc::gen::inRange(1, 30);
  for (int i = 0; i < tickets; ++i) {
    input.tickets.push_back(random_ticket(i, gpus + 1));
    input.tickets.back().stopped = *rc::gen::inRange(0, 8) == 0;
    input.tickets.back().request.max_processes = *rc::gen::inRange(0U, 2U);
  }
  Planner explained(input);
  Planner unexplained(input);
  bool exhausted = false;
  for (const QueuedTicket& ticket : input.tickets) {
    const Outcome outcome = explained.decide(ticket);
    RC_ASSERT(describe_outcome(unexplained.decide(ticket, Planner::Explain::no)) ==
              describe_outcome(outcome));
    RC_ASSERT(!exhausted || !outcome.grant);
    exhausted = unexplained.is_exhausted();
    RC_ASSERT(exhausted == explained.is_exhausted());
  }
}

RC_GTEST_PROP(PlanModel, decides_the_same_unexplained, ()) {
  // Several servers, because the shortcuts do not apply to most of them.
  for (int server = 0; server < 20; ++server) expect_the_same_unexplained();
}

// One planner is given every ticket, and of those that can be left out some as stopped, and some
// not at all. The other leaves out all that can be left out. Both must decide the same for the
// others.
void expect_the_same_without_those_left_out() {
  const int gpus = *rc::gen::inRange(1, 6);
  PlanInput input = random_server(gpus);
  std::map<std::string, TimePoint> ends;
  add_random_leases(input, ends);
  for (GpuCondition& gpu : input.gpus) gpu.usable = *rc::gen::inRange(0, 6) != 0;
  const int tickets = *rc::gen::inRange(1, 30);
  for (int i = 0; i < tickets; ++i) {
    input.tickets.push_back(random_ticket(i, gpus + 1));
    if (*rc::gen::inRange(0, 4) == 0)
      input.tickets.back().profiled_job = *rc::gen::element("train", "evaluate");
  }
  Planner complete(input);
  Planner shorter(input);
  std::vector<QueuedTicket> left_out;
  for (QueuedTicket& ticket : input.tickets) {
    const bool like_an_earlier_one =
        std::any_of(left_out.begin(), left_out.end(), [&](const QueuedTicket& earlier) {
          return earlier.request == ticket.request && earlier.profiled_job == ticket.profiled_job;
        });
    const bool can_leave_out = shorter.can_leave_out(ticket);
    RC_ASSERT(can_leave_out || !like_an_earlier_one);
    const int state = *rc::gen::inRange(0, 8);
    if (can_leave_out) {
      left_out.push_back(ticket);
      if (state < 2) continue;  // its client does not live
    }
    ticket.stopped = state == 2;
    const Outcome outcome = complete.decide(ticket);
    if (can_leave_out) {
      RC_ASSERT(!outcome.grant && (outcome.impossible || !outcome.wait->passed_over));
      continue;
    }
    const Outcome other = shorter.decide(ticket);
    RC_ASSERT(describe_outcome(other) == describe_outcome(outcome));
    if (!outcome.wait) continue;
    RC_ASSERT(other.wait->available == outcome.wait->available);
    RC_ASSERT(other.wait->passed_over == outcome.wait->passed_over);
    RC_ASSERT(other.wait->expected_start == outcome.wait->expected_start);
    RC_ASSERT(other.wait->profiled_by == outcome.wait->profiled_by);
    RC_ASSERT(other.wait->blockers.size() == outcome.wait->blockers.size());
    RC_ASSERT(complete.is_exhausted() == shorter.is_exhausted());
  }
}

RC_GTEST_PROP(PlanModel, decides_the_same_without_tickets_that_can_be_left_out, ()) {
  for (int server = 0; server < 20; ++server) expect_the_same_without_those_left_out();
}

// Simulates the server until the ticket `watched` starts, and returns that time. A granted ticket
// runs for its announced time, or else for its time in `run_times`.
TimePoint simulate_start(const std::string& watched, PlanInput input,
                         std::map<std::string, TimePoint> actual_ends,
                         const std::map<std::string, seconds>& run_times) {
  for (int step = 0; step < 10'000; ++step) {
    for (const Outcome& outcome : plan(input)) {
      if (!outcome.grant) continue;
      if (outcome.ticket == watched) return input.now;
      const auto ticket = std::find_if(input.tickets.begin(), input.tickets.end(),
                                       [&](const auto& t) { return t.id == outcome.ticket; });
      const Request& request = ticket->request;
      HeldLease lease{ticket->id, outcome.grant->uuids, request.memory, {}, std::nullopt};
      if (request.time) lease.ends = input.now + *request.time;
      actual_ends[lease.id] = request.time ? *lease.ends : input.now + run_times.at(ticket->id);
      input.leases.push_back(lease);
      input.tickets.erase(ticket);
    }
    // Advance to the next end of a lease.
    RC_ASSERT(!input.leases.empty());
    TimePoint next = TimePoint::max();
    for (const HeldLease& lease : input.leases) next = std::min(next, actual_ends.at(lease.id));
    input.now = next;
    std::erase_if(input.leases,
                  [&](const HeldLease& lease) { return actual_ends.at(lease.id) <= next; });
  }
  RC_FAIL("the ticket never starts");
  return {};
}

RC_GTEST_PROP(PlanModel, nobody_behind_the_first_ticket_delays_it, ()) {
  const int gpus = *rc::gen::inRange(1, 6);
  PlanInput input = random_server(gpus);
  std::map<std::string, TimePoint> actual_ends;
  add_random_leases(input, actual_ends);
  input.tickets.push_back(random_ticket(0, gpus));
  RC_PRE(!plan(input).front().impossible);
  const TimePoint alone = simulate_start("ticket 0", input, actual_ends, {});
  std::map<std::string, seconds> run_times;
  const int behind = *rc::gen::inRange(1, 10);
  for (int i = 1; i <= behind; ++i) {
    input.tickets.push_back(random_ticket(i, gpus));
    run_times[input.tickets.back().id] = seconds(*rc::gen::inRange(1, 40));
  }
  RC_ASSERT(simulate_start("ticket 0", input, actual_ends, run_times) <= alone);
}

}  // namespace
}  // namespace berth
