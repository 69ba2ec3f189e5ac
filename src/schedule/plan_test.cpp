// Tests of plan() with one example for each rule.
#include "schedule/plan.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace berth {
namespace {

using namespace std::chrono_literals;

const TimePoint kNow{1'000'000s};

// A server of equal GPUs with the UUIDs a, b, c, …
PlanInput server(std::size_t count, Bytes memory = gib(24)) {
  PlanInput input;
  input.now = kNow;
  for (std::size_t i = 0; i < count; ++i) {
    GpuCondition gpu;
    gpu.uuid = std::string(1, static_cast<char>('a' + i));
    gpu.name = "NVIDIA RTX A6000";
    gpu.memory = memory;
    gpu.utilization_pct = gpu.memory_utilization_pct = 0;
    input.gpus.push_back(gpu);
  }
  return input;
}

void hold(PlanInput& input, const std::string& id, std::vector<std::string> uuids,
          std::optional<Bytes> memory = std::nullopt,
          std::optional<std::chrono::nanoseconds> left = std::nullopt) {
  std::optional<TimePoint> ends;
  if (left) ends = kNow + *left;
  input.leases.push_back({id, std::move(uuids), memory, {}, ends});
}

QueuedTicket& queue(PlanInput& input, const std::string& id, unsigned count = 1,
                    std::optional<Bytes> memory = std::nullopt) {
  QueuedTicket ticket;
  ticket.id = id;
  ticket.request.count = count;
  ticket.request.memory = memory;
  input.tickets.push_back(ticket);
  return input.tickets.back();
}

// The granted GPUs ("a b"), "wait" or "impossible".
std::string describe_outcome(const std::vector<Outcome>& outcomes, std::size_t ticket) {
  const Outcome& outcome = outcomes.at(ticket);
  if (outcome.impossible) return "impossible";
  if (outcome.wait) return "wait";
  return join_text(outcome.grant->uuids, " ");
}

TEST(Plan, first_come_first_served) {
  PlanInput input = server(2);
  for (const char* id : {"1", "2", "3"}) queue(input, id);
  const auto outcomes = plan(input);
  EXPECT_EQ(describe_outcome(outcomes, 0), "a");
  EXPECT_EQ(describe_outcome(outcomes, 1), "b");
  EXPECT_EQ(describe_outcome(outcomes, 2), "wait");
  ASSERT_EQ(outcomes[2].wait->blockers.size(), 2U);
  EXPECT_EQ(outcomes[2].wait->blockers[0].reason, BlockReason::leased);
  EXPECT_EQ(outcomes[2].wait->blockers[0].leases, std::vector<std::string>{"1"});
}

TEST(Plan, one_at_a_time_measures_a_type_and_holds_up_nobody_else) {
  PlanInput input = server(3);
  hold(input, "lease", {"a"});
  input.leases.back().profiled_job = "train";
  queue(input, "1").profiled_job = "train";
  queue(input, "2").profiled_job = "test";
  queue(input, "3").profiled_job = "test";
  queue(input, "4");
  const auto outcomes = plan(input);
  EXPECT_EQ(describe_outcome(outcomes, 0), "wait");
  EXPECT_EQ(outcomes[0].wait->profiled_by, "lease");
  EXPECT_EQ(describe_outcome(outcomes, 1), "b");
  EXPECT_EQ(describe_outcome(outcomes, 2), "wait");
  EXPECT_EQ(outcomes[2].wait->profiled_by, "2");
  // The first ticket waits for a profile, and makes no reservation.
  EXPECT_EQ(describe_outcome(outcomes, 3), "c");
}

TEST(Plan, a_stopped_ticket_keeps_nobody_from_measuring) {
  PlanInput input = server(2);
  queue(input, "1").profiled_job = "train";
  input.tickets.back().stopped = true;
  queue(input, "2").profiled_job = "train";
  const auto outcomes = plan(input);
  EXPECT_EQ(describe_outcome(outcomes, 0), "wait");
  EXPECT_EQ(describe_outcome(outcomes, 1), "a");
}

TEST(Plan, several_gpus_come_together_or_not_at_all) {
  PlanInput input = server(3);
  hold(input, "lease", {"a"});
  queue(input, "wide", 3);
  const auto outcomes = plan(input);
  EXPECT_EQ(describe_outcome(outcomes, 0), "wait");
  EXPECT_EQ(outcomes[0].wait->available, 2U);
}

TEST(Plan, a_wide_ticket_is_not_starved_by_narrow_ones) {
  PlanInput input = server(2);
  hold(input, "lease", {"a"});
  queue(input, "wide", 2);
  queue(input, "narrow");
  const auto outcomes = plan(input);
  EXPECT_EQ(describe_outcome(outcomes, 1), "wait");
  EXPECT_EQ(outcomes[1].wait->blockers[1].reason, BlockReason::reserved);
  EXPECT_EQ(outcomes[1].wait->blockers[1].ticket, "wide");
}

TEST(Plan, gaps_are_filled_by_those_who_say_that_they_will_be_gone) {
  PlanInput input = server(2);
  hold(input, "lease", {"a"}, std::nullopt, 1h);
  queue(input, "wide", 2);
  queue(input, "long").request.time = 61min;
  queue(input, "short").request.time = 1h;
  const auto outcomes = plan(input);
  EXPECT_EQ(outcomes[0].wait->expected_start, kNow + 1h);
  EXPECT_EQ(describe_outcome(outcomes, 1), "wait");
  EXPECT_EQ(describe_outcome(outcomes, 2), "b");
}

TEST(Plan, a_gpu_that_is_held_for_sure_can_be_used_until_then) {
  PlanInput input = server(2);
  hold(input, "known", {"a"}, gib(10), 2h);
  hold(input, "unknown", {"b"});
  queue(input, "first");
  queue(input, "until then", 1, gib(2)).request.time = 2h;
  queue(input, "longer", 1, gib(2)).request.time = 121min;
  const auto outcomes = plan(input);
  EXPECT_EQ(describe_outcome(outcomes, 1), "a");
  EXPECT_EQ(describe_outcome(outcomes, 2), "wait");
}

TEST(Plan, gpus_that_the_first_ticket_cannot_use_are_free_for_others) {
  PlanInput input = server(3);
  input.gpus[2].name = "Tesla K80";
  hold(input, "lease", {"a"});
  queue(input, "wide", 2).request.name = "a6000";
  queue(input, "narrow");
  EXPECT_EQ(describe_outcome(plan(input), 1), "c");
}

TEST(Plan, gpus_that_come_free_later_than_the_first_ticket_needs_are_free_for_others) {
  PlanInput input = server(2);
  hold(input, "x", {"a"}, gib(20), 1h);
  hold(input, "y", {"b"}, gib(20), 2h);
  queue(input, "first", 1, gib(10));
  queue(input, "second", 1, gib(3));
  const auto outcomes = plan(input);
  EXPECT_EQ(outcomes[0].wait->expected_start, kNow + 1h);
  EXPECT_EQ(describe_outcome(outcomes, 1), "a") << "10 GiB and 3 GiB fit beside each other on a";
  input.tickets[0].request.memory = gib(22);
  EXPECT_EQ(describe_outcome(plan(input), 1), "b") << "22 GiB and 3 GiB do not";
}

TEST(Plan, a_stopped_ticket_is_passed_over_and_keeps_its_place) {
  PlanInput input = server(1);
  queue(input, "stopped").stopped = true;
  queue(input, "next");
  auto outcomes = plan(input);
  EXPECT_EQ(describe_outcome(outcomes, 0), "wait");
  EXPECT_TRUE(outcomes[0].wait->passed_over);
  EXPECT_EQ(describe_outcome(outcomes, 1), "a");
  input.tickets[0].stopped = false;
  outcomes = plan(input);
  EXPECT_EQ(describe_outcome(outcomes, 0), "a");
}

TEST(Plan, what_can_never_be_is_impossible_at_once) {
  PlanInput input = server(4);
  hold(input, "lease", {"a", "b", "c", "d"});
  queue(input, "too many", 5);
  queue(input, "too large", 1, gib(25));
  queue(input, "no such name").request.name = "H100";
  queue(input, "the whole card", 1, gib(24));
  const auto outcomes = plan(input);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(describe_outcome(outcomes, i), "impossible");
  EXPECT_EQ(outcomes[0].impossible->matching, 4U);
  EXPECT_EQ(outcomes[1].impossible->largest, gib(24));
  EXPECT_EQ(outcomes[2].impossible->matching, 0U);
  EXPECT_EQ(describe_outcome(outcomes, 3), "wait");
}

TEST(Plan, an_impossible_ticket_is_in_nobodys_way) {
  PlanInput input = server(1);
  queue(input, "impossible", 2);
  queue(input, "possible");
  EXPECT_EQ(describe_outcome(plan(input), 1), "a");
}

TEST(Plan, sharing_adds_up) {
  PlanInput input = server(1);
  hold(input, "lease", {"a"}, gib(10));
  queue(input, "fits", 1, gib(8));
  queue(input, "does not", 1, gib(6));
  const auto outcomes = plan(input);
  EXPECT_EQ(describe_outcome(outcomes, 0), "a");
  EXPECT_EQ(describe_outcome(outcomes, 1), "wait");
  EXPECT_EQ(outcomes[1].wait->blockers[0].reason, BlockReason::memory);
}

TEST(Plan, exclusive_and_shared_do_not_meet) {
  PlanInput input = server(1);
  hold(input, "lease", {"a"}, gib(1));
  queue(input, "exclusive");
  EXPECT_EQ(describe_outcome(plan(input), 0), "wait");
  input.leases[0].memory = std::nullopt;
  input.tickets[0].request.memory = gib(1);
  EXPECT_EQ(describe_outcome(plan(input), 0), "wait");
}

TEST(Plan, what_a_lease_really_uses_counts_if_it_is_more) {
  PlanInput input = server(1);
  hold(input, "lease", {"a"}, gib(4));
  queue(input, "ticket", 1, gib(12));
  EXPECT_EQ(describe_outcome(plan(input), 0), "a");
  input.leases[0].observed = gib(14);
  EXPECT_EQ(describe_outcome(plan(input), 0), "wait");
}

TEST(Plan, strangers_are_seen) {
  PlanInput input = server(2);
  input.gpus[0].strangers = 1;
  input.gpus[0].strangers_memory = gib(9);
  queue(input, "one");
  queue(input, "two");
  auto outcomes = plan(input);
  EXPECT_EQ(describe_outcome(outcomes, 0), "b");
  EXPECT_EQ(outcomes[1].wait->blockers[0].reason, BlockReason::strangers);
  // A request that tolerates strangers is still limited to the memory that they leave.
  input.tickets.clear();
  input.gpus.pop_back();
  queue(input, "tolerant", 1, gib(15)).request.max_processes = 1;
  EXPECT_EQ(describe_outcome(plan(input), 0), "wait");
  input.tickets[0].request.memory = gib(14);
  EXPECT_EQ(describe_outcome(plan(input), 0), "a");
}

TEST(Plan, unknown_is_not_free) {
  PlanInput input = server(1);
  input.gpus[0].usable = false;
  queue(input, "any");
  EXPECT_EQ(describe_outcome(plan(input), 0), "wait");
  input.gpus[0].usable = true;
  input.gpus[0].utilization_pct = std::nullopt;
  EXPECT_EQ(describe_outcome(plan(input), 0), "a");
  input.tickets[0].request.max_utilization_pct = 100;
  EXPECT_EQ(describe_outcome(plan(input), 0), "wait") << "an unknown load is above any limit";
  input.tickets[0].request = {};
  input.gpus[0].memory = std::nullopt;
  input.tickets[0].request.memory = gib(1);
  EXPECT_EQ(describe_outcome(plan(input), 0), "impossible") << "its size is unknown";
}

TEST(Plan, policies_choose) {
  PlanInput input = server(3);
  hold(input, "x", {"a"}, gib(4));
  hold(input, "y", {"b"}, gib(8));
  input.gpus[2].display = true;
  queue(input, "ticket", 1, gib(2));
  EXPECT_EQ(describe_outcome(plan(input), 0), "a") << "the emptiest that drives no screen";
  input.tickets[0].request.policy = Policy::pack;
  EXPECT_EQ(describe_outcome(plan(input), 0), "b") << "the fullest that fits";
  input.tickets[0].request.policy = Policy::random;
  std::string seen;
  for (input.seed = 0; input.seed < 64; ++input.seed) seen += describe_outcome(plan(input), 0);
  for (const char uuid : {'a', 'b', 'c'}) EXPECT_NE(seen.find(uuid), std::string::npos);
}

TEST(Plan, several_gpus_go_by_their_connections) {
  PlanInput input = server(4);
  input.closeness.assign(4, std::vector<unsigned>(4, 1));
  input.closeness[1][3] = input.closeness[3][1] = 10;
  queue(input, "pair", 2);
  EXPECT_EQ(describe_outcome(plan(input), 0), "b d");
  // With so many sets, the greedy search is used: 24 GPUs in rings of 8.
  input = server(24);
  input.closeness.assign(24, std::vector<unsigned>(24, 1));
  for (std::size_t i = 8; i < 16; ++i) {
    for (std::size_t j = 8; j < 16; ++j) input.closeness[i][j] = 10;
  }
  queue(input, "eight", 8);
  EXPECT_EQ(describe_outcome(plan(input), 0), "i j k l m n o p");
}

TEST(Plan, a_lease_that_overran_may_end_at_any_moment) {
  PlanInput input = server(2);
  hold(input, "late", {"a"}, std::nullopt, -1min);
  queue(input, "wide", 2);
  queue(input, "short").request.time = 1s;
  const auto outcomes = plan(input);
  EXPECT_EQ(outcomes[0].wait->expected_start, std::nullopt);
  EXPECT_EQ(describe_outcome(outcomes, 1), "wait");
}

}  // namespace
}  // namespace berth
