// Unit tests of silent_tickets.h: time is passed in.
#include "broker/silent_tickets.h"

#include <gtest/gtest.h>

namespace berth {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const SilentTickets::Clock::time_point kBegin = SilentTickets::Clock::now();

TEST(SilentTickets, an_unclaimed_grant_is_suspicious_after_a_second_or_a_ring) {
  SilentTickets silent;
  EXPECT_FALSE(silent.suspects(true, false, kBegin));
  EXPECT_FALSE(silent.suspects(true, false, kBegin + milliseconds(900)));
  EXPECT_TRUE(silent.suspects(true, false, kBegin + seconds(1)));
  EXPECT_FALSE(silent.suspects(false, true, kBegin + seconds(2)));
  EXPECT_TRUE(silent.suspects(true, true, kBegin + seconds(3)));
}

TEST(SilentTickets, several_are_passed_over_in_less_than_six_seconds) {
  SilentTickets silent;
  const std::vector<std::string> ids{"a", "b", "c", "d", "e", "f", "g", "h"};
  EXPECT_FALSE(silent.pass_over(ids, kBegin));
  EXPECT_FALSE(silent.pass_over(ids, kBegin + seconds(3)));
  EXPECT_TRUE(silent.pass_over(ids, kBegin + milliseconds(3700)));
  EXPECT_TRUE(silent.is_passed_over("a", kBegin + milliseconds(3700)));
  EXPECT_FALSE(silent.is_passed_over("h", kBegin + milliseconds(3700)));
  EXPECT_TRUE(silent.pass_over(ids, kBegin + milliseconds(5900)));
  EXPECT_TRUE(silent.is_passed_over("h", kBegin + milliseconds(5900)));
}

TEST(SilentTickets, the_first_in_the_queue_runs_out_of_time_first) {
  SilentTickets silent;
  (void)silent.pass_over({"a", "b"}, kBegin);
  (void)silent.pass_over({"a", "b"}, kBegin + milliseconds(3750));
  EXPECT_TRUE(silent.is_passed_over("a", kBegin + milliseconds(3750)));
  EXPECT_FALSE(silent.is_passed_over("b", kBegin + milliseconds(3750)));
}

TEST(SilentTickets, a_ticket_that_was_granted_nothing_meanwhile_begins_anew) {
  SilentTickets silent;
  (void)silent.pass_over({"a", "b"}, kBegin);
  (void)silent.pass_over({"a"}, kBegin + seconds(2));
  EXPECT_FALSE(silent.pass_over({"b"}, kBegin + seconds(10)));
  EXPECT_FALSE(silent.is_passed_over("b", kBegin + seconds(10)));
}

TEST(SilentTickets, it_is_passed_over_for_longer_each_time) {
  SilentTickets silent;
  auto now = kBegin;
  for (const seconds expected : {seconds(60), seconds(120), seconds(240)}) {
    (void)silent.pass_over({"a"}, now);
    now += seconds(4);
    ASSERT_TRUE(silent.pass_over({"a"}, now));
    EXPECT_TRUE(silent.is_passed_over("a", now + expected - seconds(1)));
    now += expected;
    EXPECT_FALSE(silent.is_passed_over("a", now));
  }
}

}  // namespace
}  // namespace berth
