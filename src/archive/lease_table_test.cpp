// Unit tests of lease_table.h and compact_history.h: each lease is in the table once, whatever
// the order of its lines; names of jobs.
#include "archive/lease_table.h"

#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <type_traits>
#include <unistd.h>
#include <utility>

#include "archive/compact_history.h"

namespace berth {
namespace {

using std::chrono::seconds;

HistoryEntry entry(const std::string& id, uid_t uid, Ending ending, std::int64_t lasted = 60) {
  HistoryEntry result;
  result.id = id;
  result.uid = uid;
  result.command = "python train.py";
  result.gpus = {{"GPU-1", "0", "A6000"}};
  result.asked = result.granted = TimePoint(seconds(1'763'280'000));
  result.ended = result.granted + seconds(lasted);
  result.ending = ending;
  return result;
}

void add_entry(LeaseTable& table, const HistoryEntry& one) {
  table.add(make_entry_view(one));
}

static_assert(!std::is_copy_constructible_v<StringTable> && !std::is_copy_assignable_v<StringTable>,
              "a copy would point into the map of the original");

TEST(StringTable, keeps_indices_when_moved) {
  StringTable first;
  EXPECT_EQ(first.intern("short"), 0U);
  EXPECT_EQ(first.intern("another"), 1U);
  StringTable second = std::move(first);
  EXPECT_EQ(second[0], "short");
  EXPECT_EQ(second.intern("another"), 1U);
  EXPECT_EQ(second.intern("new"), 2U);
}

TEST(LeaseTable, merges_lines_of_one_lease_in_any_order) {
  for (const bool backwards : {false, true}) {
    std::vector<HistoryEntry> lines{entry("aaaaaaaa", 1, Ending::running, 1),
                                    entry("aaaaaaaa", 1, Ending::lost, 90),
                                    entry("aaaaaaaa", 1, Ending::exited, 60)};
    lines[2].gpus.push_back({"GPU-2", "1", "A6000"});
    if (backwards) std::reverse(lines.begin(), lines.end());
    LeaseTable table;
    for (const HistoryEntry& line : lines) add_entry(table, line);
    ASSERT_EQ(table.leases().size(), 1U);
    const CompactLease& lease = table.leases().front();
    EXPECT_EQ(lease.ending, Ending::exited);
    EXPECT_EQ(lease.ended_ms - lease.granted_ms, 90'000) << "it was left behind until then";
    ASSERT_EQ(table.uses(lease).size(), 2U);
    EXPECT_EQ(table.gpus()[table.uses(lease)[1].gpu].uuid, "GPU-2");
  }
}

// Of a user with implausibly many jobs and GPUs, further jobs are combined and GPUs left out.
TEST(LeaseTable, bounds_the_names_each_user_can_add) {
  LeaseTable table;
  for (int i = 0; i < 6000; ++i) {
    HistoryEntry one = entry(fmt::format("{:08}", i), 1, Ending::exited);
    one.job = fmt::format("job {}", i);
    one.gpus.front().uuid = fmt::format("GPU-{}", i);
    add_entry(table, one);
  }
  HistoryEntry honest = entry("aaaaaaaa", 2, Ending::exited);
  honest.job = "honest";
  honest.gpus.front().uuid = "GPU-honest";
  add_entry(table, honest);
  EXPECT_EQ(table.leases().size(), 6001U);
  EXPECT_EQ(table.jobs().size(), 4096U + 2) << "and one name for the rest";
  EXPECT_EQ(table.gpus().size(), 1024U + 1);
  EXPECT_EQ(table.jobs()[table.leases().back().job], "honest");
  EXPECT_EQ(table.gpus()[table.uses(table.leases().back()).front().gpu].uuid, "GPU-honest");
}

TEST(LeaseTable, same_id_of_two_users_is_two_rows) {
  LeaseTable table;
  for (const char* id : {"aaaaaaaa", "", "an id that is not of berth", "a", "aaaaaaab"}) {
    add_entry(table, entry(id, 1, Ending::exited));
    add_entry(table, entry(id, 2, Ending::exited));
  }
  EXPECT_EQ(table.leases().size(), 10U);
}

TEST(LeaseTable, finds_every_lease_after_growing) {
  LeaseTable one;
  LeaseTable other;
  for (int i = 0; i < 5'000; ++i) {
    add_entry(i % 2 == 0 ? one : other, entry(fmt::format("a{:07}", i), 1, Ending::running, 1));
    add_entry(i % 3 == 0 ? one : other, entry(fmt::format("a{:07}", i), 1, Ending::exited, i));
  }
  one.merge(other);
  ASSERT_EQ(one.leases().size(), 5'000U);
  std::int64_t sum = 0;
  for (const CompactLease& lease : one.leases()) {
    EXPECT_EQ(lease.ending, Ending::exited);
    sum += (lease.ended_ms - lease.granted_ms) / 1000;
  }
  EXPECT_EQ(sum, 5'000 * 4'999 / 2);
}

TEST(LeaseTable, merge_maps_indices_of_the_other_table) {
  LeaseTable one;
  LeaseTable other;
  add_entry(one, entry("aaaaaaaa", 1, Ending::exited));
  HistoryEntry idle = entry("bbbbbbbb", 1, Ending::exited, 3600);
  idle.job = "evaluate";
  idle.gpus = {{"GPU-2", "1", "A100", std::nullopt, 7}};
  idle.idle = seconds(3000);
  add_entry(other, idle);
  one.merge(other);
  const CompactLease& merged = one.leases().back();
  EXPECT_EQ(one.jobs()[merged.job], "evaluate");
  EXPECT_EQ(one.gpus()[one.uses(merged)[0].gpu].name, "A100");
  EXPECT_EQ(one.uses(merged)[0].utilization_pct, 7);
  EXPECT_EQ(one.text(merged).command, "python train.py");
  EXPECT_TRUE(was_idle(merged));
}

TEST(LeaseTable, a_lease_that_ended_while_the_lines_were_read_is_not_lost) {
  LeaseTable table;
  const HistoryEntry begun = entry("aaaaaaaa", 1, Ending::running, 1);
  const HistoryEntry ended = entry("bbbbbbbb", 1, Ending::exited, 60);
  add_entry(table, begun);
  add_entry(table, ended);
  table.apply_live_leases({}, {}, TimePoint(seconds(1'763'280'000 + 500)),
                          {lease_key(begun), lease_key(ended)});
  EXPECT_EQ(table.leases()[0].ending, Ending::running);
  EXPECT_EQ(table.leases()[1].ending, Ending::exited);
}

TEST(LeaseTable, live_leases_are_running_and_others_lost) {
  LeaseTable table;
  add_entry(table, entry("aaaaaaaa", 1, Ending::running, 1));
  add_entry(table, entry("bbbbbbbb", 1, Ending::running, 1));
  HistoryEntry measured = entry("cccccccc", 1, Ending::exited, 60);
  measured.gpus.front().utilization_pct = 90;
  measured.gpus.front().power_mw = 300'000;
  measured.idle = seconds(30);
  add_entry(table, measured);
  HistoryEntry unknown_yet = entry("dddddddd", 2, Ending::running, 1);
  HistoryEntry others_id = entry("bbbbbbbb", 2, Ending::running, 1);  // of another user
  const TimePoint now = TimePoint(seconds(1'763'280'000 + 500));
  table.apply_live_leases({entry("aaaaaaaa", 1, Ending::running),
                           entry("cccccccc", 1, Ending::running), unknown_yet, others_id},
                          {}, now);
  ASSERT_EQ(table.leases().size(), 5U);
  EXPECT_EQ(table.leases()[0].ending, Ending::running);
  EXPECT_EQ(table.leases()[0].ended_ms, to_ms(now));
  EXPECT_EQ(table.leases()[1].ending, Ending::lost);
  const CompactLease& left_behind = table.leases()[2];
  EXPECT_EQ(left_behind.ending, Ending::running) << "what it left behind has the GPUs";
  EXPECT_EQ(left_behind.ended_ms, to_ms(now));
  EXPECT_EQ(left_behind.idle_ms, -1);
  EXPECT_EQ(table.uses(left_behind)[0].utilization_pct, -1);
  EXPECT_EQ(table.uses(left_behind)[0].power_mw, -1);
  EXPECT_EQ(table.gpus()[table.uses(left_behind)[0].gpu].index, "0");
  EXPECT_EQ(table.leases()[3].ending, Ending::running);
}

TEST(LeaseTable, clamps_inconsistent_times) {
  HistoryEntry line = entry("aaaaaaaa", 1, Ending::exited, -60);
  line.asked = line.granted + seconds(60);
  line.idle = seconds(1'000'000);
  LeaseTable table;
  add_entry(table, line);
  const CompactLease& lease = table.leases().front();
  EXPECT_EQ(lease.ended_ms, lease.granted_ms);
  EXPECT_EQ(lease.waited_s, 0);
  EXPECT_EQ(lease.idle_ms, 0);
}

TEST(LeaseTable, job_name_comes_from_the_job_or_the_command) {
  const auto named = [](const char* job, const char* command) {
    EntryView view;
    view.job = job;
    view.command = command;
    return job_name(view);
  };
  EXPECT_EQ(named("train", "python x.py"), "train");
  EXPECT_EQ(named("", "/usr/bin/python3 -u /home/ann/train.py --lr 1"), "python3 train.py");
  EXPECT_EQ(named("", "./simulate --device 0"), "simulate");
  EXPECT_EQ(named("", "  nvidia-smi"), "nvidia-smi");
  EXPECT_EQ(named("", ""), "");
}

TEST(ReadLeases, reads_all_users_files_and_counts_damage) {
  std::string pattern = testing::TempDir() + "berth-leases-XXXXXX";
  const std::string archive = ::mkdtemp(pattern.data());
  const UserFolder folder = *open_own_folder(archive);
  const uid_t me = ::geteuid();
  for (int month = 0; month < 6; ++month) {
    HistoryEntry one = entry(fmt::format("aaaaaaa{}", month), me, Ending::exited, 60);
    one.ended += std::chrono::hours(24 * 30 * month);
    ASSERT_TRUE(append_history(folder, one));
    std::ofstream(fmt::format("{}/{}", folder.path, month_file_name(one.ended)), std::ios::app)
        << "{\n";
  }
  const CompactHistory all = read_compact_history(archive, {}, std::nullopt);
  EXPECT_EQ(all.table.leases().size(), 6U);
  EXPECT_EQ(all.damaged, 6U);
  const TimePoint later = entry("", 0, Ending::exited).ended + std::chrono::hours(24 * 70);
  EXPECT_EQ(read_compact_history(archive, later, std::nullopt).table.leases().size(), 3U);
  EXPECT_EQ(read_compact_history(archive, {}, me).table.leases().size(), 6U);
  EXPECT_TRUE(read_compact_history(archive, {}, me + 1).table.leases().empty());
  EXPECT_TRUE(read_compact_history(fmt::format("{}/none", archive), {}, std::nullopt)
                  .table.leases()
                  .empty());
  std::filesystem::remove_all(archive);
}

}  // namespace
}  // namespace berth
