// Unit tests of report.h: leases cut at midnight, shared, lost, unmeasured and idle; occupancy and
// energy.
#include "archive/report.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace berth {
namespace {

using std::chrono::hours;
using std::chrono::minutes;

const TimePoint kMidnight = TimePoint(std::chrono::seconds(1'763'251'200));  // 2025-11-16 UTC

TimePoint at_hour(double hour) {
  return kMidnight + std::chrono::milliseconds(static_cast<std::int64_t>(hour * 3'600'000));
}

class ReportTest : public testing::Test {
 protected:
  ReportTest() {
    query_.since = at_hour(0);
    query_.now = at_hour(72);
    for (int day = 0; day <= 4; ++day) query_.midnights.push_back(kMidnight + hours(24 * day));
  }

  // An exclusive lease of user 1 on one GPU; `change` can modify it.
  void lease(double from, double to, const std::function<void(HistoryEntry&)>& change = {}) {
    HistoryEntry entry;
    entry.id = fmt::format("a{:07}", ++number_);
    entry.uid = 1;
    entry.command = "python train.py";
    entry.gpus = {{"GPU-1", "0", "A6000"}};
    entry.asked = entry.granted = at_hour(from);
    entry.ended = at_hour(to);
    entry.ending = Ending::exited;
    if (change) change(entry);
    table_.add(make_entry_view(entry));
  }

  Report report() const { return make_report(table_, query_); }

  LeaseTable table_;
  ReportQuery query_;
  int number_ = 0;
};

TEST_F(ReportTest, empty_table) {
  const Report empty = report();
  EXPECT_EQ(empty.total.leases, 0U);
  EXPECT_TRUE(empty.users.empty() && empty.jobs.empty() && empty.gpus.empty());
  EXPECT_TRUE(empty.days.empty() && empty.idle.empty());
  EXPECT_EQ(empty.total.waits, std::nullopt);
  EXPECT_EQ(empty.total.utilization_pct(), std::nullopt);
}

TEST_F(ReportTest, groups_by_user_job_gpu_and_day) {
  lease(1, 3);
  lease(2, 7, [](HistoryEntry& entry) {
    entry.uid = 2;
    entry.job = "evaluate";
    entry.gpus.push_back({"GPU-2", "10", "A100"});
    entry.gpus.push_back({"GPU-3", "9", "A100"});
  });
  const Report all = report();
  EXPECT_DOUBLE_EQ(all.total.gpu_hours, 17);
  ASSERT_EQ(all.users.size(), 2U);
  EXPECT_EQ(all.users[0].key.uid, 2U);  // the user with the most hours
  EXPECT_DOUBLE_EQ(all.users[0].figures.gpu_hours, 15);
  ASSERT_EQ(all.jobs.size(), 2U);
  EXPECT_EQ(all.jobs[0].key, "evaluate");
  EXPECT_EQ(all.jobs[1].key, "python train.py");
  ASSERT_EQ(all.gpus.size(), 3U);
  EXPECT_EQ(all.gpus[1].key.index, "9");  // 9 comes before 10
  EXPECT_DOUBLE_EQ(all.gpus[0].figures.gpu_hours, 7);
  EXPECT_EQ(all.gpus[0].figures.leases, 2U);
  ASSERT_EQ(all.days.size(), 4U);
  EXPECT_DOUBLE_EQ(all.days[0].figures.gpu_hours, 17);
  EXPECT_DOUBLE_EQ(all.days[1].figures.gpu_hours, 0);
}

TEST_F(ReportTest, splits_a_lease_at_midnight) {
  lease(20, 54);  // from the first day into the third
  const Report split = report();
  EXPECT_DOUBLE_EQ(split.days[0].figures.gpu_hours, 4);
  EXPECT_DOUBLE_EQ(split.days[1].figures.gpu_hours, 24);
  EXPECT_DOUBLE_EQ(split.days[2].figures.gpu_hours, 6);
  EXPECT_EQ(split.days[0].figures.leases, 1U);  // on the day of its grant
  EXPECT_EQ(split.days[1].figures.leases, 0U);
}

TEST_F(ReportTest, days_may_have_23_or_25_hours) {
  query_.midnights[1] -= hours(1);  // as in spring
  lease(-5, 60);
  const Report split = report();
  EXPECT_DOUBLE_EQ(split.days[0].figures.gpu_hours, 23);
  EXPECT_DOUBLE_EQ(split.days[1].figures.gpu_hours, 25);
}

TEST_F(ReportTest, ignores_time_before_since) {
  lease(-10, 2, [](HistoryEntry& entry) {
    entry.asked = at_hour(-20);
    entry.idle = hours(6);  // half of it
  });
  lease(-10, -1);
  const Report clipped = report();
  EXPECT_EQ(clipped.total.leases, 1U);
  EXPECT_DOUBLE_EQ(clipped.total.gpu_hours, 2);
  EXPECT_DOUBLE_EQ(clipped.total.idle, 1);
  EXPECT_EQ(clipped.total.waits, std::nullopt);  // it was granted before the period
}

TEST_F(ReportTest, ignores_time_after_now) {
  lease(71, 1000);
  lease(100, 200);
  EXPECT_EQ(report().total.leases, 1U);
  EXPECT_DOUBLE_EQ(report().total.gpu_hours, 1);
}

TEST_F(ReportTest, nested_leases_are_not_counted_twice) {
  lease(1, 3);
  lease(1, 2, [](HistoryEntry& entry) { entry.parent_lease = "a0000001"; });
  EXPECT_EQ(report().total.leases, 1U);
  EXPECT_EQ(report().nested, 1U);
  EXPECT_DOUBLE_EQ(report().total.gpu_hours, 2);
}

TEST_F(ReportTest, counts_shared_gpus_separately) {
  lease(0, 1);
  lease(0, 2, [](HistoryEntry& entry) {
    entry.memory = gib(8);
    entry.idle = hours(2);
  });
  const Figures total = report().total;
  EXPECT_DOUBLE_EQ(total.gpu_hours, 1);
  EXPECT_DOUBLE_EQ(total.shared_gpu_hours, 2);
  EXPECT_DOUBLE_EQ(total.shared_gib_hours, 16);
  EXPECT_DOUBLE_EQ(total.idle_measured, 0);  // others may have used the GPU
}

TEST_F(ReportTest, counts_lost_and_running_leases) {
  lease(0, 2, [](HistoryEntry& entry) { entry.ending = Ending::lost; });
  lease(70, 70.1, [](HistoryEntry& entry) { entry.ending = Ending::running; });
  HistoryEntry live;
  live.id = "a0000002";
  live.uid = 1;
  table_.apply_live_leases({live}, {}, query_.now);
  const Figures total = report().total;
  EXPECT_EQ(total.lost, 1U);
  EXPECT_EQ(total.running, 1U);
  EXPECT_DOUBLE_EQ(total.gpu_hours, 4);  // two up to the written line, two until now
}

TEST_F(ReportTest, unmeasured_is_unknown_and_not_zero) {
  lease(0, 6);
  EXPECT_EQ(report().total.utilization_pct(), std::nullopt);
  EXPECT_EQ(report().total.idle_pct(), std::nullopt);
  lease(0, 2, [](HistoryEntry& entry) {
    entry.gpus[0].utilization_pct = 80;
    entry.idle = minutes(30);
  });
  const Figures total = report().total;
  EXPECT_DOUBLE_EQ(*total.utilization_pct(), 80);  // the six unmeasured hours do not count
  EXPECT_DOUBLE_EQ(total.utilization_measured, 2);
  EXPECT_DOUBLE_EQ(*total.idle_pct(), 25);
  EXPECT_DOUBLE_EQ(total.idle_measured, 2);
}

TEST_F(ReportTest, weights_utilization_by_time) {
  lease(0, 3, [](HistoryEntry& entry) { entry.gpus[0].utilization_pct = 100; });
  lease(3, 4, [](HistoryEntry& entry) { entry.gpus[0].utilization_pct = 0; });
  EXPECT_DOUBLE_EQ(*report().total.utilization_pct(), 75);
}

TEST_F(ReportTest, counts_only_selected_gpus) {
  query_.includes_gpu = [](std::string_view, std::string_view index) { return index == "1"; };
  lease(0, 1);
  lease(0, 2, [](HistoryEntry& entry) { entry.gpus.push_back({"GPU-2", "1", ""}); });
  // A lease from the harbour has no index.
  lease(4, 7, [](HistoryEntry& entry) { entry.gpus = {{"GPU-2", "", ""}}; });
  const Report some = report();
  EXPECT_EQ(some.total.leases, 2U);
  EXPECT_DOUBLE_EQ(some.total.gpu_hours, 5);
  ASSERT_EQ(some.gpus.size(), 1U);
  EXPECT_EQ(some.gpus[0].key.index, "1");
}

TEST_F(ReportTest, wait_percentiles) {
  for (int i = 1; i <= 100; ++i) {
    lease(1, 2, [&](HistoryEntry& entry) { entry.asked = entry.granted - minutes(i); });
  }
  const auto waits = report().total.waits;
  ASSERT_TRUE(waits);
  EXPECT_DOUBLE_EQ(waits->median_s, 50 * 60);
  EXPECT_DOUBLE_EQ(waits->p95_s, 95 * 60);
  EXPECT_DOUBLE_EQ(waits->longest_s, 100 * 60);
}

TEST_F(ReportTest, lists_the_worst_idle_leases) {
  const auto idle_for = [](int idle) {
    return [idle](HistoryEntry& entry) { entry.idle = minutes(idle); };
  };
  lease(0, 1, idle_for(9));    // too short to matter
  lease(0, 10, idle_for(60));  // worked most of the time
  lease(0, 1);                 // not measured
  for (int i = 0; i < 12; ++i) lease(0, 1, idle_for(30 + i));
  lease(0, 1, [](HistoryEntry& entry) {
    entry.idle = minutes(35);
    entry.label = "two GPUs";
    entry.gpus.push_back({"GPU-2", "1", ""});
  });
  const Report found = report();
  ASSERT_EQ(found.idle.size(), 10U);
  EXPECT_EQ(found.idle[0].text.label, "two GPUs");
  EXPECT_EQ(found.idle[0].gpus.size(), 2U);
  EXPECT_EQ(found.idle[1].idle, minutes(41));
  EXPECT_EQ(found.idle[1].lasted, hours(1));
  EXPECT_EQ(found.idle[1].text.command, "python train.py");
}

TEST_F(ReportTest, occupancy_is_a_share_of_the_time_of_all_gpus) {
  EXPECT_EQ(report().total.occupancy_pct(), std::nullopt);  // the GPUs are not known
  query_.history_start = at_hour(-1000);
  query_.present = {{"GPU-1", "0", ""}, {"GPU-2", "1", ""}};
  lease(-5, 36);
  lease(10, 20, [](HistoryEntry& entry) {
    entry.uid = 2;
    entry.gpus = {{"GPU-gone", "0", ""}};
  });
  const Report all = report();
  EXPECT_EQ(all.gpu_count, 2U);
  EXPECT_DOUBLE_EQ(all.total.capacity_hours, 144);
  EXPECT_DOUBLE_EQ(*all.total.occupancy_pct(), 25);
  EXPECT_DOUBLE_EQ(*all.users[0].figures.occupancy_pct(), 25);
  EXPECT_DOUBLE_EQ(*all.users[1].figures.occupancy_pct(), 0);
  ASSERT_EQ(all.gpus.size(), 2U);
  for (const auto& gpu : all.gpus) {
    const bool is_present = gpu.key.uuid == "GPU-1";
    EXPECT_EQ(gpu.figures.occupancy_pct(), is_present ? std::optional(50.0) : std::nullopt);
  }
  EXPECT_DOUBLE_EQ(*all.days[0].figures.occupancy_pct(), 50);
  EXPECT_DOUBLE_EQ(*all.days[1].figures.occupancy_pct(), 25);
  EXPECT_DOUBLE_EQ(*all.days[2].figures.occupancy_pct(), 0);
}

TEST_F(ReportTest, the_time_before_the_history_is_no_capacity) {
  query_.present = {{"GPU-1", "0", ""}};
  lease(60, 66);
  EXPECT_DOUBLE_EQ(report().total.capacity_hours, 12);  // since the first lease
  query_.history_start = at_hour(48);
  EXPECT_DOUBLE_EQ(report().total.capacity_hours, 24);
  EXPECT_EQ(report().recorded_since, at_hour(48));
  // A lease before the start, true or not, does not count before it.
  lease(42, 54);
  EXPECT_EQ(report().recorded_since, at_hour(48));
  EXPECT_DOUBLE_EQ(report().total.capacity_hours, 24);
  EXPECT_DOUBLE_EQ(*report().total.occupancy_pct(), 50);
  EXPECT_DOUBLE_EQ(*report().users[0].figures.occupancy_pct(), 50);
  query_.includes_gpu = [](std::string_view, std::string_view index) { return index == "1"; };
  EXPECT_DOUBLE_EQ(report().total.capacity_hours, 0);
}

TEST_F(ReportTest, leases_divide_the_time_and_energy_of_a_shared_card) {
  query_.present = {{"GPU-1", "0", ""}};
  const auto share = [](uid_t uid, std::optional<unsigned> power_mw) {
    return [=](HistoryEntry& entry) {
      entry.uid = uid;
      entry.memory = gib(2);
      entry.gpus[0].power_mw = power_mw;
    };
  };
  lease(0, 24, share(1, 200'000));
  lease(12, 36, share(2, 400'000));
  lease(30, 36, share(3, std::nullopt));
  const Report all = report();
  EXPECT_DOUBLE_EQ(all.total.shared_gpu_hours, 54);
  EXPECT_DOUBLE_EQ(all.total.cards.hours, 36);
  EXPECT_DOUBLE_EQ(*all.total.occupancy_pct(), 50);
  // 12 h at 200 W, 12 h at the mean of both, 12 h at 400 W.
  EXPECT_NEAR(*all.total.energy_kwh(), 2.4 + 3.6 + 4.8, 1e-9);
  EXPECT_NEAR(*all.days[0].figures.energy_kwh(), 6, 1e-9);
  EXPECT_NEAR(*all.days[1].figures.energy_kwh(), 4.8, 1e-9);
  // Each user's own measurement, or the mean, for the equal share of the time.
  for (const auto& user : all.users) {
    const double expected = user.key.uid == 1 ? 2.4 + 1.2 : user.key.uid == 2 ? 2.4 + 3.6 : 1.2;
    EXPECT_NEAR(*user.figures.energy_kwh(), expected, 1e-9) << user.key.uid;
  }
}

TEST_F(ReportTest, a_false_power_of_another_user_changes_only_their_own_energy) {
  const auto measured = [](uid_t uid, unsigned power_mw) {
    return [=](HistoryEntry& entry) {
      entry.uid = uid;
      entry.memory = gib(2);
      entry.gpus[0].power_mw = power_mw;
    };
  };
  lease(0, 10, measured(1, 200'000));
  lease(0, 10, measured(2, 10'000'000));
  for (const auto& user : report().users)
    EXPECT_NEAR(*user.figures.energy_kwh(), user.key.uid == 1 ? 1 : 50, 1e-9);
}

TEST_F(ReportTest, energy_that_was_not_measured_is_unknown) {
  lease(0, 6);
  EXPECT_EQ(report().total.energy_kwh(), std::nullopt);
  lease(6, 8, [](HistoryEntry& entry) { entry.gpus[0].power_mw = 500'000; });
  EXPECT_DOUBLE_EQ(*report().total.energy_kwh(), 1);
  EXPECT_DOUBLE_EQ(report().total.cards.measured_hours, 2);
  // A false value of a user is limited.
  lease(8, 9, [](HistoryEntry& entry) { entry.gpus[0].power_mw = 4'000'000'000; });
  EXPECT_DOUBLE_EQ(*report().total.energy_kwh(), 1 + 10);
}

// For any leases, the groups add up to the total.
RC_GTEST_FIXTURE_PROP(ReportTest, groups_add_up_to_the_total, ()) {
  query_.present = {{"GPU-1", "0", ""}, {"GPU-2", "1", ""}};
  const int leases = *rc::gen::inRange(0, 12);
  for (int i = 0; i < leases; ++i) {
    const double from = *rc::gen::inRange(-3000, 8000) / 100.0;
    const double to = from + *rc::gen::inRange(0, 9000) / 100.0;
    lease(from, to, [](HistoryEntry& entry) {
      entry.uid = *rc::gen::inRange(1U, 4U);
      entry.gpus[0].uuid = *rc::gen::element("GPU-1", "GPU-2");
      if (*rc::gen::arbitrary<bool>()) entry.memory = gib(3);
      if (*rc::gen::arbitrary<bool>()) entry.gpus[0].utilization_pct = *rc::gen::inRange(0U, 101U);
      if (*rc::gen::arbitrary<bool>()) entry.gpus[0].power_mw = *rc::gen::inRange(0U, 500'000U);
      if (*rc::gen::arbitrary<bool>()) entry.idle = minutes(*rc::gen::inRange(0, 6000));
    });
  }
  const Report all = report();
  const auto same = [&](const auto& groups) {
    Amounts sum;
    for (const auto& group : groups) sum.add(group.figures);
    for (const auto amount :
         {&Amounts::gpu_hours, &Amounts::shared_gpu_hours, &Amounts::shared_gib_hours,
          &Amounts::utilized, &Amounts::utilization_measured, &Amounts::idle,
          &Amounts::idle_measured}) {
      RC_ASSERT(std::abs(sum.*amount - all.total.*amount) < 1e-6);
    }
    CardTime cards;
    for (const auto& group : groups) {
      cards.add(group.figures.cards);
      RC_ASSERT(group.figures.occupancy_pct().value_or(0) <= 100 + 1e-6);
    }
    for (const auto amount : {&CardTime::hours, &CardTime::recorded_hours, &CardTime::energy_kwh,
                              &CardTime::measured_hours})
      RC_ASSERT(std::abs(cards.*amount - all.total.cards.*amount) < 1e-6);
  };
  same(all.users);
  same(all.jobs);
  same(all.gpus);
  same(all.days);
  RC_ASSERT(all.total.idle <= all.total.idle_measured + 1e-9);
  RC_ASSERT(all.total.utilized <= all.total.utilization_measured + 1e-9);
}

}  // namespace
}  // namespace berth
