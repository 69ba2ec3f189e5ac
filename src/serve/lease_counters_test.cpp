// Each lease counts once, whoever tells of it, in whatever order, and however often.
#include "serve/lease_counters.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace berth {
namespace {

using std::chrono::seconds;

const TimePoint kBegan = TimePoint(seconds(1'763'251'200));

Record lease(const std::string& id, double granted_s, double waited_s = 0) {
  Record record;
  record.id = id;
  record.uid = 1;
  record.granted = kBegan + std::chrono::milliseconds(static_cast<int>(granted_s * 1000));
  record.since = record.granted - std::chrono::milliseconds(static_cast<int>(waited_s * 1000));
  return record;
}

std::vector<Status> harbour(std::vector<Record> leases) {
  Status status;
  status.host = "here";
  status.leases = std::move(leases);
  return {status};
}

HistoryEntry line(const Record& record, Ending ending) {
  HistoryEntry entry;
  entry.id = record.id;
  entry.uid = record.uid;
  entry.within = record.within;
  entry.asked = record.since;
  entry.granted = record.granted;
  entry.ending = ending;
  return entry;
}

class TallyTest : public testing::Test {
 protected:
  const HostCounters& here() const { return tally_.hosts().at("here"); }
  std::uint64_t ended(Ending ending) const {
    const auto& endings = here().endings;
    return endings.contains(ending) ? endings.at(ending) : 0;
  }

  LeaseCounters tally_{kBegan};
};

TEST_F(TallyTest, a_lease_counts_once_whoever_tells_of_it) {
  const Record one = lease("a0000001", 5, 2);
  tally_.see(harbour({one}));
  tally_.take(line(one, Ending::running), "here");
  tally_.see(harbour({one}));
  tally_.take(line(one, Ending::exited), "here");
  tally_.take(line(one, Ending::exited), "here");
  tally_.take(line(one, Ending::lost), "here");  // what it left behind
  EXPECT_EQ(here().grants, 1U);
  EXPECT_EQ(here().waits.total(), 1U);
  EXPECT_DOUBLE_EQ(here().waits.sum_s, 2);
  EXPECT_EQ(ended(Ending::exited), 1U);
  EXPECT_EQ(ended(Ending::lost), 0U);
}

TEST_F(TallyTest, one_that_was_over_between_two_looks_counts) {
  tally_.see(harbour({}));
  tally_.take(line(lease("a0000001", 1), Ending::killed), "here");
  EXPECT_EQ(here().grants, 1U);
  EXPECT_EQ(ended(Ending::killed), 1U);
}

TEST_F(TallyTest, what_was_granted_before_is_no_grant_but_ends) {
  const Record old = lease("a0000001", -100, 50);
  tally_.see(harbour({old}));
  tally_.take(line(old, Ending::released), "here");
  EXPECT_EQ(here().grants, 0U);
  EXPECT_EQ(here().waits.total(), 0U);
  EXPECT_EQ(ended(Ending::released), 1U);
}

TEST_F(TallyTest, nobody_waited_for_what_is_inside_of_another) {
  Record inner = lease("a0000001", 1);
  inner.within = "a0000002";
  tally_.see(harbour({inner}));
  tally_.take(line(inner, Ending::exited), "here");
  EXPECT_EQ(here().grants, 0U);
  EXPECT_TRUE(here().endings.empty());
}

TEST_F(TallyTest, ids_are_those_of_a_user_and_a_host) {
  Record other = lease("a0000001", 1);
  other.uid = 2;
  tally_.see(harbour({lease("a0000001", 1), other}));
  EXPECT_EQ(here().grants, 2U);
  HistoryEntry elsewhere = line(other, Ending::exited);
  elsewhere.host = "nobody-has-seen-it";
  tally_.take(elsewhere, "here");
  EXPECT_EQ(tally_.hosts().size(), 1U);
}

TEST_F(TallyTest, what_runs_is_not_forgotten) {
  const Record one = lease("a0000001", 1);
  tally_.see(harbour({one}));
  for (int i = 0; i < 60'000; ++i) {
    tally_.take(line(lease(fmt::format("b{:07}", i), 1), Ending::exited), "here");
  }
  tally_.see(harbour({one}));
  tally_.see(harbour({one}));
  EXPECT_EQ(here().grants, 60'001U);
}

TEST(WaitHistogram, a_bound_belongs_to_what_is_below_it) {
  WaitHistogram waits;
  waits.add(0);
  waits.add(1);
  waits.add(1.5);
  waits.add(1e9);
  EXPECT_EQ(waits.counts[0], 1U);
  EXPECT_EQ(waits.counts[1], 1U);
  EXPECT_EQ(waits.counts[2], 1U);
  EXPECT_EQ(waits.counts.back(), 1U);
}

}  // namespace
}  // namespace berth
