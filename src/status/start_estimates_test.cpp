// Unit tests of the expected starts of tickets, for a whole queue.
#include "status/start_estimates.h"

#include <gtest/gtest.h>

namespace berth {
namespace {

using std::chrono::hours;
using Starts = std::vector<std::optional<TimePoint>>;

const TimePoint kStart{hours(500'000)};

PlanInput make_host(unsigned gpus) {
  PlanInput input;
  input.now = kStart;
  for (unsigned i = 0; i < gpus; ++i) {
    GpuCondition gpu;
    gpu.uuid = "GPU-" + std::to_string(i);
    gpu.memory = gib(24);
    input.gpus.push_back(gpu);
  }
  return input;
}

void add_lease(PlanInput& input, unsigned gpu, std::optional<hours> left) {
  HeldLease lease;
  lease.id = "lease-" + std::to_string(input.leases.size());
  lease.uuids = {"GPU-" + std::to_string(gpu)};
  if (left) lease.ends = kStart + *left;
  input.leases.push_back(lease);
}

void add_ticket(PlanInput& input, unsigned count, std::optional<hours> time, bool stopped = false) {
  QueuedTicket ticket;
  ticket.id = "ticket-" + std::to_string(input.tickets.size());
  ticket.request.count = count;
  if (time) ticket.request.time = *time;
  ticket.stopped = stopped;
  input.tickets.push_back(ticket);
}

Starts estimate_times(const PlanInput& input) {
  Starts times;
  for (const StartEstimate& estimate : estimate_starts(input)) times.push_back(estimate.time);
  return times;
}

TEST(StartEstimates, each_ticket_starts_when_the_work_before_it_ends) {
  PlanInput input = make_host(1);
  add_lease(input, 0, hours(2));
  add_ticket(input, 1, hours(3));
  add_ticket(input, 1, hours(1));
  EXPECT_EQ(estimate_times(input), (Starts{kStart + hours(2), kStart + hours(5)}));
}

TEST(StartEstimates, nothing_is_expected_behind_work_of_unknown_length) {
  PlanInput input = make_host(1);
  add_lease(input, 0, hours(2));
  add_ticket(input, 1, std::nullopt);
  add_ticket(input, 1, hours(1));
  EXPECT_EQ(estimate_times(input), (Starts{kStart + hours(2), std::nullopt}));
}

TEST(StartEstimates, nothing_is_expected_behind_an_overdue_lease) {
  PlanInput input = make_host(1);
  add_lease(input, 0, hours(-1));
  add_ticket(input, 1, hours(1));
  EXPECT_EQ(estimate_times(input), Starts{std::nullopt});
}

TEST(StartEstimates, a_wide_ticket_waits_for_its_last_gpu) {
  PlanInput input = make_host(2);
  add_lease(input, 0, hours(1));
  add_lease(input, 1, hours(4));
  add_ticket(input, 2, hours(1));
  add_ticket(input, 1, hours(2));  // fits before the wide one, on the GPU that is free first
  EXPECT_EQ(estimate_times(input), (Starts{kStart + hours(4), kStart + hours(1)}));
}

TEST(StartEstimates, a_ticket_that_can_start_now_counts_for_those_behind_it) {
  PlanInput input = make_host(1);
  add_ticket(input, 1, hours(3));
  add_ticket(input, 1, hours(3));
  EXPECT_EQ(estimate_times(input), (Starts{std::nullopt, kStart + hours(3)}));
}

TEST(StartEstimates, a_stopped_ticket_has_none_and_delays_nobody) {
  PlanInput input = make_host(1);
  add_lease(input, 0, hours(2));
  add_ticket(input, 1, hours(3), true);
  add_ticket(input, 1, hours(1));
  EXPECT_EQ(estimate_times(input), (Starts{std::nullopt, kStart + hours(2)}));
}

TEST(StartEstimates, a_long_queue_is_estimated_in_part) {
  PlanInput input = make_host(1);
  add_lease(input, 0, hours(1));
  for (int i = 0; i < 1000; ++i) add_ticket(input, 1, hours(1));
  const Starts starts = estimate_times(input);
  ASSERT_EQ(starts.size(), 1000U);
  EXPECT_EQ(starts[9], kStart + hours(10));
  EXPECT_FALSE(starts.back());
}

TEST(StartEstimates, what_has_no_expected_end_is_told) {
  PlanInput input = make_host(2);
  add_lease(input, 0, hours(2));
  add_lease(input, 1, std::nullopt);
  add_ticket(input, 2, hours(1));
  add_ticket(input, 2, hours(1));
  const std::vector<StartEstimate> estimates = estimate_starts(input);
  ASSERT_TRUE(estimates[0].last_wait && estimates[1].last_wait);
  ASSERT_EQ(estimates[0].last_wait->blockers.size(), 1);  // GPU 0 will be free
  EXPECT_EQ(estimates[0].last_wait->blockers[0].leases, std::vector<std::string>{"lease-1"});
  input.leases[1].ends = kStart + hours(1);
  for (const StartEstimate& estimate : estimate_starts(input))
    EXPECT_TRUE(estimate.time && !estimate.last_wait);
}

}  // namespace
}  // namespace berth
