// Tests that each lease counts once, whichever sources report it, how often and in which order.
#include "serve/lease_counters.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace berth::serve {
namespace {

using std::chrono::seconds;

const TimePoint kStart = TimePoint(seconds(1'763'251'200));

Record make_lease(const std::string& id, double granted_s, double waited_s = 0) {
  Record record;
  record.id = id;
  record.uid = 1;
  record.granted = kStart + std::chrono::milliseconds(static_cast<int>(granted_s * 1000));
  record.since = record.granted - std::chrono::milliseconds(static_cast<int>(waited_s * 1000));
  return record;
}

std::vector<Status> make_status(std::vector<Record> leases) {
  Status status;
  status.host = "here";
  status.leases = std::move(leases);
  return {status};
}

HistoryEntry make_history_entry(const Record& record, Ending ending) {
  HistoryEntry entry;
  entry.id = record.id;
  entry.uid = record.uid;
  entry.parent_lease = record.parent_lease;
  entry.asked = record.since;
  entry.granted = record.granted;
  entry.ending = ending;
  return entry;
}

class LeaseCountersTest : public testing::Test {
 protected:
  const HostCounters& local_counters() const { return counters_.hosts().at("here"); }
  std::uint64_t ending_count(Ending ending) const {
    const auto& endings = local_counters().endings;
    return endings.contains(ending) ? endings.at(ending) : 0;
  }

  LeaseCounters counters_{kStart};
};

TEST_F(LeaseCountersTest, counts_a_lease_once_from_status_and_history) {
  const Record one = make_lease("a0000001", 5, 2);
  counters_.observe_status(make_status({one}));
  counters_.add_history_entry(make_history_entry(one, Ending::running), "here");
  counters_.observe_status(make_status({one}));
  counters_.add_history_entry(make_history_entry(one, Ending::exited), "here");
  counters_.add_history_entry(make_history_entry(one, Ending::exited), "here");
  counters_.add_history_entry(make_history_entry(one, Ending::lost),
                              "here");  // its remains were found later
  EXPECT_EQ(local_counters().grants, 1U);
  EXPECT_EQ(local_counters().waits.total(), 1U);
  EXPECT_DOUBLE_EQ(local_counters().waits.sum_s, 2);
  EXPECT_EQ(ending_count(Ending::exited), 1U);
  EXPECT_EQ(ending_count(Ending::lost), 0U);
}

TEST_F(LeaseCountersTest, counts_a_lease_that_ended_between_two_polls) {
  counters_.observe_status(make_status({}));
  counters_.add_history_entry(make_history_entry(make_lease("a0000001", 1), Ending::killed),
                              "here");
  EXPECT_EQ(local_counters().grants, 1U);
  EXPECT_EQ(ending_count(Ending::killed), 1U);
}

TEST_F(LeaseCountersTest, counts_the_end_but_not_the_grant_of_older_leases) {
  const Record old = make_lease("a0000001", -100, 50);
  counters_.observe_status(make_status({old}));
  counters_.add_history_entry(make_history_entry(old, Ending::released), "here");
  EXPECT_EQ(local_counters().grants, 0U);
  EXPECT_EQ(local_counters().waits.total(), 0U);
  EXPECT_EQ(ending_count(Ending::released), 1U);
}

TEST_F(LeaseCountersTest, ignores_subleases) {
  Record inner = make_lease("a0000001", 1);
  inner.parent_lease = "a0000002";
  counters_.observe_status(make_status({inner}));
  counters_.add_history_entry(make_history_entry(inner, Ending::exited), "here");
  EXPECT_EQ(local_counters().grants, 0U);
  EXPECT_TRUE(local_counters().endings.empty());
}

TEST_F(LeaseCountersTest, ids_are_unique_per_user_and_host) {
  Record other = make_lease("a0000001", 1);
  other.uid = 2;
  counters_.observe_status(make_status({make_lease("a0000001", 1), other}));
  EXPECT_EQ(local_counters().grants, 2U);
  HistoryEntry elsewhere = make_history_entry(other, Ending::exited);
  elsewhere.host = "not-seen-before";
  counters_.add_history_entry(elsewhere, "here");
  EXPECT_EQ(counters_.hosts().size(), 1U);
}

TEST_F(LeaseCountersTest, running_leases_are_not_evicted) {
  const Record one = make_lease("a0000001", 1);
  counters_.observe_status(make_status({one}));
  for (int i = 0; i < 60'000; ++i) {
    counters_.add_history_entry(
        make_history_entry(make_lease(fmt::format("b{:07}", i), 1), Ending::exited), "here");
  }
  counters_.observe_status(make_status({one}));
  counters_.observe_status(make_status({one}));
  EXPECT_EQ(local_counters().grants, 60'001U);
}

TEST(WaitHistogram, bucket_bounds_are_inclusive) {
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
}  // namespace berth::serve
