// Unit tests of the timing of silent tickets, with times that the tests pass in.
#include "lease/silent_tickets.h"

#include <gtest/gtest.h>

namespace berth {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Claimable = SilentTickets::Claimable;

const SilentTickets::Clock::time_point kStart = SilentTickets::Clock::now();

std::vector<Claimable> make_claimable(const std::vector<std::string>& ids) {
  std::vector<Claimable> found;
  for (const std::string& id : ids) found.push_back({id, false});
  return found;
}

// Makes the tickets suspects at the time `now`.
void suspect(SilentTickets& silent, const std::set<std::string>& ids,
             SilentTickets::Clock::time_point now) {
  (void)silent.observe(ids, false, 1, now - seconds(1));
  (void)silent.observe(ids, false, 1, now);
}

SilentTickets make_with_suspect() {
  SilentTickets silent;
  suspect(silent, {"a"}, kStart);
  return silent;
}

TEST(SilentTickets, timing_begins_after_a_second) {
  SilentTickets silent;
  EXPECT_FALSE(silent.observe({"a"}, false, 1, kStart));
  EXPECT_FALSE(silent.observe({"a", "b"}, false, 1, kStart + milliseconds(900)));
  EXPECT_TRUE(silent.observe({"a"}, false, 1, kStart + seconds(1)));
  EXPECT_FALSE(silent.observe({}, false, 1, kStart + seconds(2)));
  EXPECT_FALSE(silent.observe({"a"}, false, 1, kStart + seconds(3)));
}

TEST(SilentTickets, timing_begins_at_a_ring) {
  SilentTickets silent;
  EXPECT_FALSE(silent.observe({}, true, 1, kStart));
  EXPECT_TRUE(silent.observe({"a"}, true, 1, kStart));
}

TEST(SilentTickets, tickets_that_claim_one_after_the_other_are_not_timed) {
  SilentTickets silent;
  for (int i = 0; i < 20; ++i)
    EXPECT_FALSE(silent.observe({std::to_string(i)}, false, 1, kStart + i * milliseconds(500)));
}

TEST(SilentTickets, continues_while_tickets_are_timed) {
  SilentTickets silent = make_with_suspect();
  (void)silent.time_tickets(make_claimable({"a"}), kStart);
  EXPECT_TRUE(silent.observe({}, false, 1, kStart + seconds(1)));
  (void)silent.time_tickets({}, kStart + seconds(1));
  EXPECT_FALSE(silent.observe({}, false, 1, kStart + seconds(2)));
}

TEST(SilentTickets, a_ticket_that_claims_is_not_a_suspect_any_more) {
  SilentTickets silent = make_with_suspect();
  EXPECT_TRUE(silent.has_suspect(make_claimable({"a", "b"})));
  EXPECT_FALSE(silent.has_suspect(make_claimable({"b"})));
  (void)silent.time_tickets(make_claimable({"a", "b"}), kStart);
  (void)silent.time_tickets(make_claimable({"a", "b"}), kStart + milliseconds(3700));
  ASSERT_TRUE(silent.is_passed_over("a"));
  EXPECT_TRUE(silent.has_suspect(make_claimable({"b"}))) << "tickets behind it may be silent, too";
}

TEST(SilentTickets, a_long_pause_resets_the_times) {
  SilentTickets silent = make_with_suspect();
  (void)silent.time_tickets(make_claimable({"a"}), kStart);
  EXPECT_FALSE(silent.observe({"a"}, false, 1, kStart + seconds(6)));
  EXPECT_FALSE(silent.is_timing());
}

TEST(SilentTickets, each_is_rung_once) {
  SilentTickets silent = make_with_suspect();
  auto timing = silent.time_tickets(make_claimable({"a", "b"}), kStart);
  EXPECT_TRUE(timing.started);
  EXPECT_EQ(timing.ids_to_ring, (std::vector<std::string>{"a", "b"}));
  timing = silent.time_tickets(make_claimable({"a", "b"}), kStart + seconds(1));
  EXPECT_FALSE(timing.started);
  EXPECT_TRUE(timing.ids_to_ring.empty());
}

TEST(SilentTickets, the_first_in_the_queue_runs_out_of_time_first) {
  SilentTickets silent = make_with_suspect();
  (void)silent.time_tickets(make_claimable({"a", "b"}), kStart);
  EXPECT_EQ(silent.next_decision(kStart), kStart + milliseconds(500));
  EXPECT_EQ(silent.next_decision(kStart + milliseconds(3600)), kStart + milliseconds(3700));
  EXPECT_FALSE(
      silent.time_tickets(make_claimable({"a", "b"}), kStart + milliseconds(3699)).passed_over);
  EXPECT_TRUE(
      silent.time_tickets(make_claimable({"a", "b"}), kStart + milliseconds(3750)).passed_over);
  EXPECT_TRUE(silent.is_passed_over("a"));
  EXPECT_FALSE(silent.is_passed_over("b"));
  // The rank of "b" has not changed: another client may still wait for "a".
  const std::vector<Claimable> rest{{"a", true}, {"b", false}};
  EXPECT_FALSE(silent.time_tickets(rest, kStart + milliseconds(3890)).passed_over);
  EXPECT_TRUE(silent.time_tickets(rest, kStart + milliseconds(3900)).passed_over);
  EXPECT_FALSE(silent.is_timing());
}

TEST(SilentTickets, however_many_are_silent_it_takes_less_than_ten_seconds) {
  SilentTickets silent = make_with_suspect();
  std::vector<std::string> ids{"a"};
  for (int i = 0; i < 2000; ++i) ids.push_back(std::to_string(i));
  (void)silent.time_tickets(make_claimable(ids), kStart);
  (void)silent.time_tickets(make_claimable(ids), kStart + milliseconds(6500));
  for (const std::string& id : ids) EXPECT_TRUE(silent.is_passed_over(id));
}

TEST(SilentTickets, clients_far_back_begin_later_and_decide_less_often) {
  SilentTickets silent;
  EXPECT_FALSE(silent.observe({"a"}, true, 11, kStart)) << "a ring does not make it begin";
  EXPECT_FALSE(silent.observe({"a"}, false, 11, kStart + milliseconds(1400)));
  EXPECT_TRUE(silent.observe({"a"}, false, 11, kStart + seconds(2)));
  (void)silent.time_tickets(make_claimable({"a"}), kStart + seconds(2));
  EXPECT_EQ(silent.next_decision(kStart + seconds(2)), kStart + seconds(4));
}

TEST(SilentTickets, limits_the_number_of_rings) {
  SilentTickets silent = make_with_suspect();
  std::vector<std::string> ids{"a"};
  for (int i = 0; i < 300; ++i) ids.push_back(std::to_string(i));
  EXPECT_EQ(silent.time_tickets(make_claimable(ids), kStart).ids_to_ring.size(), 10U);
}

TEST(SilentTickets, time_while_the_lock_was_held_does_not_count) {
  SilentTickets silent = make_with_suspect();
  (void)silent.time_tickets(make_claimable({"a"}), kStart);
  silent.exclude_time(seconds(6));
  EXPECT_TRUE(silent.observe({"a"}, false, 1, kStart + seconds(7)));
  EXPECT_FALSE(silent.time_tickets(make_claimable({"a"}), kStart + seconds(7)).passed_over);
  EXPECT_TRUE(silent.time_tickets(make_claimable({"a"}), kStart + milliseconds(9700)).passed_over);
}

TEST(SilentTickets, a_stopped_ticket_is_not_timed) {
  SilentTickets silent = make_with_suspect();
  (void)silent.time_tickets(make_claimable({"a"}), kStart);
  (void)silent.time_tickets({{"a", true}}, kStart + seconds(3));
  EXPECT_FALSE(silent.is_timing());
  EXPECT_FALSE(silent.next_decision(kStart + seconds(4)));
}

TEST(SilentTickets, a_ticket_that_could_not_claim_is_timed_anew) {
  SilentTickets silent = make_with_suspect();
  (void)silent.time_tickets(make_claimable({"a", "b"}), kStart);
  (void)silent.time_tickets(make_claimable({"a"}), kStart + seconds(2));
  EXPECT_FALSE(silent.is_timed("b"));
  (void)silent.time_tickets(make_claimable({"a", "b"}), kStart + seconds(3));
  (void)silent.time_tickets(make_claimable({"a", "b"}), kStart + seconds(6));
  EXPECT_TRUE(silent.is_passed_over("a"));
  EXPECT_FALSE(silent.is_passed_over("b"));
}

TEST(SilentTickets, a_ticket_has_a_little_time_when_the_one_before_it_is_gone) {
  SilentTickets silent;
  suspect(silent, {"a", "b"}, kStart);
  (void)silent.time_tickets(make_claimable({"a", "b"}), kStart);
  const auto timing = silent.time_tickets(make_claimable({"b"}), kStart + milliseconds(3850));
  EXPECT_EQ(timing.ids_to_ring, std::vector<std::string>{"b"});
  EXPECT_FALSE(timing.started);
  EXPECT_FALSE(timing.passed_over);
  EXPECT_EQ(silent.next_decision(kStart + milliseconds(3850)), kStart + milliseconds(4050));
  EXPECT_TRUE(silent.time_tickets(make_claimable({"b"}), kStart + milliseconds(4050)).passed_over);
}

TEST(SilentTickets, retries_after_a_minute_and_later_each_time) {
  SilentTickets silent;
  auto now = kStart;
  for (const seconds expected : {seconds(60), seconds(120), seconds(240)}) {
    suspect(silent, {"a"}, now);
    (void)silent.time_tickets(make_claimable({"a"}), now);
    now += seconds(4);
    ASSERT_TRUE(silent.time_tickets(make_claimable({"a"}), now).passed_over);
    EXPECT_FALSE(silent.retry_if_due("a", now + expected - seconds(1)));
    EXPECT_TRUE(silent.is_passed_over("a"));
    now += expected;
    EXPECT_TRUE(silent.retry_if_due("a", now));
    EXPECT_FALSE(silent.is_passed_over("a"));
  }
}

TEST(SilentTickets, tickets_that_have_left_the_queue_are_forgotten) {
  SilentTickets silent = make_with_suspect();
  (void)silent.time_tickets(make_claimable({"a", "b"}), kStart);
  (void)silent.time_tickets(make_claimable({"a", "b"}), kStart + seconds(5));
  silent.forget_tickets_unless([](const std::string& id) { return id == "b"; });
  EXPECT_FALSE(silent.is_passed_over("a"));
  EXPECT_TRUE(silent.is_passed_over("b"));
}

}  // namespace
}  // namespace berth
