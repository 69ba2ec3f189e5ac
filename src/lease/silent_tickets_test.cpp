// Unit tests of silent_tickets.h: time is passed in.
#include "lease/silent_tickets.h"

#include <gtest/gtest.h>

namespace berth {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Claimable = SilentTickets::Claimable;

const SilentTickets::Clock::time_point kBegin = SilentTickets::Clock::now();

std::vector<Claimable> tickets(const std::vector<std::string>& ids) {
  std::vector<Claimable> found;
  for (const std::string& id : ids) found.push_back({id, false});
  return found;
}

TEST(SilentTickets, timing_begins_after_a_second_or_a_ring) {
  SilentTickets silent;
  EXPECT_FALSE(silent.observe(true, false, 1, kBegin));
  EXPECT_FALSE(silent.observe(true, false, 1, kBegin + milliseconds(900)));
  EXPECT_TRUE(silent.observe(true, false, 1, kBegin + seconds(1)));
  EXPECT_FALSE(silent.observe(false, true, 1, kBegin + seconds(2)));
  EXPECT_TRUE(silent.observe(true, true, 1, kBegin + seconds(3)));
}

TEST(SilentTickets, goes_on_while_tickets_are_timed) {
  SilentTickets silent;
  (void)silent.time(tickets({"a"}), kBegin);
  EXPECT_TRUE(silent.observe(false, false, 1, kBegin + seconds(1)));
  (void)silent.time({}, kBegin + seconds(1));
  EXPECT_FALSE(silent.observe(false, false, 1, kBegin + seconds(2)));
}

TEST(SilentTickets, a_long_pause_forgets_the_times) {
  SilentTickets silent;
  EXPECT_TRUE(silent.observe(true, true, 1, kBegin));
  (void)silent.time(tickets({"a"}), kBegin);
  EXPECT_FALSE(silent.observe(true, false, 1, kBegin + seconds(6)));
  EXPECT_FALSE(silent.is_timing());
}

TEST(SilentTickets, each_is_rung_once) {
  SilentTickets silent;
  auto timing = silent.time(tickets({"a", "b"}), kBegin);
  EXPECT_TRUE(timing.began);
  EXPECT_EQ(timing.ring, (std::vector<std::string>{"a", "b"}));
  timing = silent.time(tickets({"a", "b"}), kBegin + seconds(1));
  EXPECT_FALSE(timing.began);
  EXPECT_TRUE(timing.ring.empty());
}

TEST(SilentTickets, the_first_in_the_queue_runs_out_of_time_first) {
  SilentTickets silent;
  (void)silent.time(tickets({"a", "b"}), kBegin);
  EXPECT_EQ(silent.next_decision(kBegin), kBegin + milliseconds(500));
  EXPECT_EQ(silent.next_decision(kBegin + milliseconds(3600)), kBegin + milliseconds(3700));
  EXPECT_FALSE(silent.time(tickets({"a", "b"}), kBegin + milliseconds(3699)).passed_over);
  EXPECT_TRUE(silent.time(tickets({"a", "b"}), kBegin + milliseconds(3750)).passed_over);
  EXPECT_TRUE(silent.is_passed_over("a"));
  EXPECT_FALSE(silent.is_passed_over("b"));
  // Its rank has not changed: a client before this one may still wait for "a".
  const std::vector<Claimable> rest{{"a", true}, {"b", false}};
  EXPECT_FALSE(silent.time(rest, kBegin + milliseconds(3890)).passed_over);
  EXPECT_TRUE(silent.time(rest, kBegin + milliseconds(3900)).passed_over);
  EXPECT_FALSE(silent.is_timing());
}

TEST(SilentTickets, however_many_are_silent_it_takes_less_than_ten_seconds) {
  SilentTickets silent;
  std::vector<std::string> ids;
  for (int i = 0; i < 2000; ++i) ids.push_back(std::to_string(i));
  (void)silent.time(tickets(ids), kBegin);
  (void)silent.time(tickets(ids), kBegin + milliseconds(6500));
  for (const std::string& id : ids) EXPECT_TRUE(silent.is_passed_over(id));
}

TEST(SilentTickets, clients_far_back_begin_later_and_decide_less_often) {
  SilentTickets silent;
  EXPECT_FALSE(silent.observe(true, true, 11, kBegin)) << "a ring does not make it begin";
  EXPECT_FALSE(silent.observe(true, true, 11, kBegin + milliseconds(1400)));
  EXPECT_TRUE(silent.observe(true, false, 11, kBegin + seconds(2)));
  (void)silent.time(tickets({"a"}), kBegin + seconds(2));
  EXPECT_EQ(silent.next_decision(kBegin + seconds(2)), kBegin + seconds(4));
}

TEST(SilentTickets, few_are_rung) {
  SilentTickets silent;
  std::vector<std::string> ids;
  for (int i = 0; i < 300; ++i) ids.push_back(std::to_string(i));
  EXPECT_EQ(silent.time(tickets(ids), kBegin).ring.size(), 10U);
}

TEST(SilentTickets, time_in_which_the_lock_was_kept_does_not_count) {
  SilentTickets silent;
  EXPECT_TRUE(silent.observe(true, true, 1, kBegin));
  (void)silent.time(tickets({"a"}), kBegin);
  silent.exclude(seconds(6));
  EXPECT_TRUE(silent.observe(true, false, 1, kBegin + seconds(7)));
  EXPECT_FALSE(silent.time(tickets({"a"}), kBegin + seconds(7)).passed_over);
  EXPECT_TRUE(silent.time(tickets({"a"}), kBegin + milliseconds(9700)).passed_over);
}

TEST(SilentTickets, a_ticket_that_falls_asleep_is_not_timed) {
  SilentTickets silent;
  (void)silent.time(tickets({"a"}), kBegin);
  (void)silent.time({{"a", true}}, kBegin + seconds(3));
  EXPECT_FALSE(silent.is_timing());
  EXPECT_FALSE(silent.next_decision(kBegin + seconds(4)));
}

TEST(SilentTickets, a_ticket_that_could_not_claim_meanwhile_begins_anew) {
  SilentTickets silent;
  (void)silent.time(tickets({"a", "b"}), kBegin);
  (void)silent.time(tickets({"a"}), kBegin + seconds(2));
  EXPECT_FALSE(silent.is_timed("b"));
  (void)silent.time(tickets({"b"}), kBegin + seconds(3));
  EXPECT_FALSE(silent.time(tickets({"b"}), kBegin + seconds(6)).passed_over);
}

TEST(SilentTickets, a_ticket_has_a_little_time_when_the_one_before_it_is_gone) {
  SilentTickets silent;
  (void)silent.time(tickets({"a", "b"}), kBegin);
  const auto timing = silent.time(tickets({"b"}), kBegin + milliseconds(3850));
  EXPECT_EQ(timing.ring, std::vector<std::string>{"b"});
  EXPECT_FALSE(timing.began);
  EXPECT_FALSE(timing.passed_over);
  EXPECT_EQ(silent.next_decision(kBegin + milliseconds(3850)), kBegin + milliseconds(4050));
  EXPECT_TRUE(silent.time(tickets({"b"}), kBegin + milliseconds(4050)).passed_over);
}

TEST(SilentTickets, it_is_tried_again_after_a_minute_and_later_each_time) {
  SilentTickets silent;
  auto now = kBegin;
  for (const seconds expected : {seconds(60), seconds(120), seconds(240)}) {
    (void)silent.time(tickets({"a"}), now);
    now += seconds(4);
    ASSERT_TRUE(silent.time(tickets({"a"}), now).passed_over);
    EXPECT_FALSE(silent.try_again("a", now + expected - seconds(1)));
    EXPECT_TRUE(silent.is_passed_over("a"));
    now += expected;
    EXPECT_TRUE(silent.try_again("a", now));
    EXPECT_FALSE(silent.is_passed_over("a"));
  }
}

TEST(SilentTickets, tickets_that_have_left_the_queue_are_forgotten) {
  SilentTickets silent;
  (void)silent.time(tickets({"a", "b"}), kBegin);
  (void)silent.time(tickets({"a", "b"}), kBegin + seconds(5));
  silent.forget_unless([](const std::string& id) { return id == "b"; });
  EXPECT_FALSE(silent.is_passed_over("a"));
  EXPECT_TRUE(silent.is_passed_over("b"));
}

}  // namespace
}  // namespace berth
