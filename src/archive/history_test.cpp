// Unit tests of history.h and follow_history.h: lines are written, read and merged.
#include "archive/history.h"

#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include "archive/entry_view.h"
#include "archive/follow_history.h"

namespace berth {
namespace {

using namespace std::chrono_literals;

TimePoint time_at(std::int64_t second) {
  return TimePoint(std::chrono::seconds(1'763'280'000 + second));  // 2025-11-16 08:00 UTC
}

HistoryEntry entry(const std::string& id, Ending ending = Ending::exited, std::int64_t begin = 0) {
  HistoryEntry result;
  result.id = id;
  result.uid = ::geteuid();
  result.command = "python train.py";
  result.gpus = {{"GPU-1", "0", "A6000"}, {"GPU-2", "1", "A6000"}};
  result.memory = gib(8);
  result.asked = time_at(begin);
  result.granted = time_at(begin + 60);
  result.ended = time_at(begin + 3600);
  result.ending = ending;
  return result;
}

class HistoryTest : public testing::Test {
 protected:
  HistoryTest() {
    std::string pattern = testing::TempDir() + "berth-history-XXXXXX";
    archive_ = ::mkdtemp(pattern.data());
  }
  ~HistoryTest() override { std::filesystem::remove_all(archive_); }

  void append(const HistoryEntry& one) {
    const auto done = append_history(*open_own_folder(archive_), one);
    ASSERT_TRUE(done) << done.error().message;
  }
  std::string file() {
    return fmt::format("{}/{}", open_own_folder(archive_)->path, month_file_name(time_at(0)));
  }
  History read(TimePoint since = {}) {
    return read_all_history(archive_, since, [](const HistoryEntry&) { return true; });
  }
  std::vector<std::string> ids(TimePoint since = {}) {
    std::vector<std::string> found;
    for (const HistoryEntry& one : read(since).entries) {
      found.push_back(one.id);
    }
    return found;
  }

  std::string archive_;
};

// A command can have two million bytes, and another user can write any line.
TEST_F(HistoryTest, truncates_long_texts_on_write_and_on_read) {
  const std::string longest(100'000, 'x');
  HistoryEntry large = entry("aaaaaaaa");
  large.command = large.label = large.job = longest;
  large.gpus.assign(1000, {longest, longest, longest});
  const std::string line = serialize_entry(large);
  EXPECT_LT(line.size(), 256U << 10);
  EXPECT_EQ(parse_entry(line)->gpus.size(), EntryLimits::kGpus);
  const std::string text = fmt::format(
      R"({{"id":"{0}","uid":1,"command":"{0}","label":"{0}","job":"{0}","within":"{0}",)"
      R"("gpus":[{{"uuid":"{0}","index":"{0}","name":"{0}"}}],"memory":null,"asked_ms":1,)"
      R"("granted_ms":1,"ended_ms":1,"ending":"exited","code":0,"user":"{0}"}})",
      longest);
  const auto read = parse_entry(text);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->id.size(), EntryLimits::kIdBytes);
  EXPECT_EQ(read->command.size(), EntryLimits::kCommandBytes);
  EXPECT_EQ(read->job.size(), EntryLimits::kJobBytes);
  EXPECT_EQ(read->gpus.front().name.size(), EntryLimits::kGpuTextBytes);
  EXPECT_EQ(read->user.size(), EntryLimits::kUserBytes);
}

TEST_F(HistoryTest, truncation_keeps_utf8_characters_whole) {
  EXPECT_EQ(truncate_utf8("abc", 3), "abc");
  EXPECT_EQ(truncate_utf8("abc", 2), "ab");
  EXPECT_EQ(truncate_utf8("aä", 2), "a");
  EXPECT_EQ(truncate_utf8("aäb", 3), "aä");
  EXPECT_EQ(truncate_utf8("€", 2), "");
}

TEST_F(HistoryTest, starts_with_the_first_lease_of_the_oldest_file) {
  EXPECT_TRUE(find_history_starts(open_user_folders(archive_)).empty());
  append(entry("aaaaaaaa"));
  HistoryEntry earlier = entry("bbbbbbbb");
  earlier.granted = time_at(-60 * 86'400);
  earlier.ended = earlier.granted + 1h;
  append(earlier);
  const HistoryStarts expected{{::geteuid(), earlier.granted}};
  EXPECT_EQ(find_history_starts(open_user_folders(archive_)), expected);
}

TEST_F(HistoryTest, starts_behind_damaged_lines) {
  std::ofstream(file()) << "{\"damaged\n\n";
  append(entry("aaaaaaaa"));
  const HistoryStarts expected{{::geteuid(), entry("aaaaaaaa").granted}};
  EXPECT_EQ(find_history_starts(open_user_folders(archive_)), expected);
}

TEST(HistoryStart, one_other_user_alone_cannot_make_it_earlier) {
  EXPECT_EQ(choose_history_start({}, 1), std::nullopt);
  EXPECT_EQ(choose_history_start({{2, time_at(10)}}, 1), time_at(10));
  EXPECT_EQ(choose_history_start({{1, time_at(50)}, {2, time_at(10)}}, 1), time_at(50));
  EXPECT_EQ(choose_history_start({{1, time_at(50)}, {2, time_at(10)}}, 2), time_at(10));
  EXPECT_EQ(choose_history_start({{0, time_at(5)}, {2, time_at(10)}, {3, time_at(12)}}, 1),
            time_at(5));
  // A new user sees the time that two others have recorded.
  EXPECT_EQ(choose_history_start({{1, time_at(50)}, {2, time_at(10)}, {3, time_at(12)}}, 1),
            time_at(12));
}

TEST_F(HistoryTest, round_trip_keeps_every_field) {
  HistoryEntry written = entry("aaaaaaaa", Ending::killed);
  written.code = 9;
  written.label = "a \"b\"\n\x1b[31m\xff";  // the last byte is not UTF-8
  written.parent_lease = "bbbbbbbb";
  written.job = "train";
  written.gpus.front().peak = gib(5);
  written.gpus.front().utilization_pct = 83;
  written.gpus.front().power_mw = 412'300;
  written.idle = std::chrono::milliseconds(1500);
  written.adopted = true;
  written.host = "gpu07";
  written.user = "ann";
  written.job_id = "cccccccc";
  written.job_host = "login1";
  const auto read = parse_entry(serialize_entry(written));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->id, "aaaaaaaa");
  EXPECT_EQ(read->uid, ::geteuid());
  EXPECT_EQ(read->label, "a \"b\"\n\x1b[31m\xef\xbf\xbd");
  EXPECT_EQ(read->parent_lease, "bbbbbbbb");
  ASSERT_EQ(read->gpus.size(), 2U);
  EXPECT_EQ(read->gpus[1].uuid, "GPU-2");
  EXPECT_EQ(read->gpus[1].index, "1");
  EXPECT_EQ(read->gpus[1].name, "A6000");
  EXPECT_EQ(read->job, "train");
  EXPECT_TRUE(read->adopted);
  EXPECT_EQ(read->host, "gpu07");
  EXPECT_EQ(read->user, "ann");
  EXPECT_EQ(read->job_id, "cccccccc");
  EXPECT_EQ(read->job_host, "login1");
  EXPECT_EQ(read->gpus[0].peak, gib(5));
  EXPECT_EQ(read->gpus[0].utilization_pct, 83);
  EXPECT_EQ(read->gpus[0].power_mw, 412'300U);
  EXPECT_EQ(read->gpus[1].power_mw, std::nullopt);
  EXPECT_EQ(read->gpus[1].peak, std::nullopt);
  EXPECT_EQ(read->gpus[1].utilization_pct, std::nullopt);
  EXPECT_EQ(read->idle, std::chrono::milliseconds(1500));
  EXPECT_EQ(read->memory, gib(8));
  EXPECT_EQ(read->asked, time_at(0));
  EXPECT_EQ(read->granted, time_at(60));
  EXPECT_EQ(read->ended, time_at(3600));
  EXPECT_EQ(read->ending, Ending::killed);
  EXPECT_EQ(read->code, 9);
  written.memory.reset();
  EXPECT_EQ(parse_entry(serialize_entry(written))->memory, std::nullopt);
}

TEST_F(HistoryTest, writes_one_file_per_month) {
  EXPECT_EQ(month_file_name(time_at(0)), "history-2025-11.jsonl");
  append(entry("aaaaaaaa"));
  HistoryEntry later = entry("bbbbbbbb");
  later.ended = time_at(30 * 86'400);
  append(later);
  EXPECT_EQ(ids(), (std::vector<std::string>{"aaaaaaaa", "bbbbbbbb"}));
  EXPECT_EQ(ids(time_at(86'400)), std::vector<std::string>{"bbbbbbbb"});
  EXPECT_TRUE(ids(time_at(60 * 86'400)).empty());
}

TEST_F(HistoryTest, skips_only_damaged_lines) {
  append(entry("aaaaaaaa"));
  std::ofstream(file(), std::ios::app) << "{\"id\":\"half a li";  // a full disk
  append(entry("bbbbbbbb"));
  std::ofstream(file(), std::ios::app) << "\n\n[]\nnull\n{}\n\xff\xfe\n"
                                       << std::string(1 << 20, '[') << "\n";
  append(entry("cccccccc"));
  const History history = read();
  EXPECT_EQ(history.entries.size(), 3U);
  EXPECT_EQ(history.damaged, 6U);
}

TEST_F(HistoryTest, reads_only_the_tail_of_a_huge_file) {
  append(entry("aaaaaaaa"));
  std::filesystem::resize_file(file(), std::uintmax_t{1} << 40);  // a hole needs no disk space
  std::ofstream(file(), std::ios::app) << "\n";
  append(entry("bbbbbbbb"));
  EXPECT_EQ(ids(), std::vector<std::string>{"bbbbbbbb"});
}

TEST_F(HistoryTest, skips_holes_in_sparse_files) {
  append(entry("aaaaaaaa"));
  for (const char* id : {"bbbbbbbb", "cccccccc"}) {
    std::filesystem::resize_file(file(), std::filesystem::file_size(file()) + (16U << 20));
    // The pages of the lines have zeros before and behind the hole, which count as damaged lines.
    std::ofstream(file(), std::ios::app) << '\n' << serialize_entry(entry(id)) << '\n';
  }
  std::filesystem::resize_file(file(), std::filesystem::file_size(file()) + (16U << 20));
  const auto folder = open_own_folder(archive_);
  off_t done = 0;
  std::vector<std::string> found;
  read_entry_views(*folder, month_file_name(time_at(0)), done,
                   [&](const EntryView& one) { found.emplace_back(one.id); });
  EXPECT_EQ(found, (std::vector<std::string>{"aaaaaaaa", "bbbbbbbb", "cccccccc"}));
  // A hole of whole pages leaves no zeros.
  std::filesystem::resize_file(file(), 0);
  std::filesystem::resize_file(file(), 16U << 20);
  std::ofstream(file(), std::ios::app) << serialize_entry(entry("dddddddd")) << '\n';
  const History history = read();
  ASSERT_EQ(history.entries.size(), 1U);
  EXPECT_EQ(history.damaged, 0U);
  done = 0;
  read_entry_views(*folder, month_file_name(time_at(0)), done, [](const EntryView&) {});
  EXPECT_EQ(static_cast<std::uintmax_t>(done), std::filesystem::file_size(file()));
}

// Of an implausibly large file only the end is read, which may begin in the middle of a line.
TEST_F(HistoryTest, partial_line_at_the_offset_is_not_damage) {
  for (const char* id : {"aaaaaaaa", "bbbbbbbb", "cccccccc"}) append(entry(id));
  const auto folder = open_own_folder(archive_);
  const auto size = static_cast<off_t>(std::filesystem::file_size(file()));
  const off_t line = size / 3;
  for (off_t offset = 0; offset <= size; ++offset) {
    off_t done = offset;
    std::vector<std::string> found;
    const std::size_t damaged =
        read_entry_views(*folder, month_file_name(time_at(0)), done,
                         [&](const EntryView& one) { found.emplace_back(one.id); });
    EXPECT_EQ(damaged, 0U) << offset;
    EXPECT_EQ(found.size(), static_cast<std::size_t>(3 - (offset + line - 1) / line)) << offset;
    EXPECT_EQ(done, size) << offset;
  }
}

TEST_F(HistoryTest, long_partial_line_at_the_offset_is_not_damage) {
  std::ofstream(file()) << std::string(1 << 20, 'x') << '\n';
  append(entry("aaaaaaaa"));
  off_t done = 10;
  std::size_t count = 0;
  EXPECT_EQ(read_entry_views(*open_own_folder(archive_), month_file_name(time_at(0)), done,
                             [&](const EntryView&) { ++count; }),
            0U);
  EXPECT_EQ(count, 1U);
}

// The end of a line that is being written is read later, together with its beginning.
TEST_F(HistoryTest, reads_a_line_only_when_it_is_complete) {
  append(entry("aaaaaaaa"));
  const std::string text = serialize_entry(entry("bbbbbbbb")) + '\n';
  off_t done = 0;
  const auto read = [&] {
    std::size_t count = 0;
    EXPECT_EQ(read_entry_views(*open_own_folder(archive_), month_file_name(time_at(0)), done,
                               [&](const EntryView&) { ++count; }),
              0U);
    return count;
  };
  std::ofstream(file(), std::ios::app) << text.substr(0, 20);
  EXPECT_EQ(read(), 1U);
  EXPECT_EQ(read(), 0U);
  std::ofstream(file(), std::ios::app) << text.substr(20);
  EXPECT_EQ(read(), 1U);
}

// The sizes of three such files add up to 2 bytes less than the smallest of them, modulo 2^64.
TEST_F(HistoryTest, sizes_of_sparse_files_do_not_overflow) {
  std::string pattern = "/dev/shm/berth-history-XXXXXX";  // tmpfs has files of any size
  if (::mkdtemp(pattern.data()) == nullptr) GTEST_SKIP() << "there is no /dev/shm";
  std::filesystem::remove_all(archive_);
  archive_ = pattern;
  append(entry("aaaaaaaa"));
  const auto folder = open_own_folder(archive_);
  for (const char* name : {"history-2025-09.jsonl", "history-2025-10.jsonl"}) {
    const std::string path = fmt::format("{}/{}", folder->path, name);
    std::ofstream(path).flush();
    if (::truncate(path.c_str(), INT64_MAX) != 0) GTEST_SKIP() << "files cannot be that large";
  }
  const HistoryFiles found =
      select_history_files(open_user_folders(archive_), time_at(-100 * 86'400));
  EXPECT_TRUE(found.truncated);
  ASSERT_EQ(found.files.size(), 3U);
  constexpr off_t kMost = 512 << 20;
  off_t left = 0;
  for (const HistoryFile& one : found.files) left += file_size(*folder, one.name) - one.offset;
  EXPECT_LE(left, kMost);
  EXPECT_EQ(found.files.back().offset, 0) << "the oldest files lose what is too much";
  EXPECT_EQ(ids(), std::vector<std::string>{"aaaaaaaa"});
}

TEST_F(HistoryTest, ignores_invalid_month_file_names) {
  append(entry("aaaaaaaa"));
  const std::string folder = open_own_folder(archive_)->path;
  for (const char* name :
       {"history-9999-12.jsonl", "history-2025-11-2.jsonl", "history-2025-1a.jsonl",
        "history-.jsonl", "history-2025-11.jsonl.jsonl"}) {
    std::ofstream(fmt::format("{}/{}", folder, name)) << serialize_entry(entry("bbbbbbbb")) << '\n';
  }
  EXPECT_EQ(ids(), std::vector<std::string>{"aaaaaaaa"});
  HistoryEntry now = entry("cccccccc");
  now.ended = std::chrono::system_clock::now();
  append(now);
  EXPECT_EQ(ids().size(), 2U);
}

TEST_F(HistoryTest, reads_lines_across_block_boundaries) {
  for (int i = 0; i < 8; ++i) {
    HistoryEntry long_one = entry(fmt::format("aaaaaaa{}", i));
    long_one.command.assign(200'000 + 7'919 * static_cast<std::size_t>(i), 'x');
    append(long_one);
  }
  EXPECT_EQ(ids().size(), 8U);
}

TEST_F(HistoryTest, truncated_line_is_damage) {
  const std::string line = serialize_entry(entry("aaaaaaaa"));
  for (std::size_t length = 0; length < line.size(); ++length) {
    EXPECT_FALSE(parse_entry(line.substr(0, length))) << length;
  }
  for (const char* key : {"id", "uid", "gpus", "granted_ms", "ending"}) {
    std::string changed = line;
    changed[changed.find(key)] = '_';
    EXPECT_FALSE(parse_entry(changed)) << key;
  }
}

TEST_F(HistoryTest, merges_lines_of_one_lease_by_finality) {
  append(entry("aaaaaaaa", Ending::running));
  append(entry("aaaaaaaa", Ending::lost));
  append(entry("aaaaaaaa", Ending::exited));
  append(entry("aaaaaaaa", Ending::lost));
  append(entry("bbbbbbbb", Ending::running, -60));
  const History history = read();
  ASSERT_EQ(history.entries.size(), 2U);
  EXPECT_EQ(history.entries[0].id, "bbbbbbbb");  // granted first
  EXPECT_EQ(history.entries[1].ending, Ending::exited);
}

TEST_F(HistoryTest, lost_line_extends_the_end_of_an_exited_lease) {
  for (const bool backwards : {false, true}) {
    HistoryEntry exited = entry(backwards ? "aaaaaaaa" : "bbbbbbbb");
    exited.code = 7;
    HistoryEntry lost = entry(exited.id, Ending::lost);
    lost.ended = time_at(9'000);
    append(backwards ? lost : exited);
    append(backwards ? exited : lost);
  }
  const History history = read();
  ASSERT_EQ(history.entries.size(), 2U);
  for (const HistoryEntry& one : history.entries) {
    EXPECT_EQ(one.ending, Ending::exited);
    EXPECT_EQ(one.code, 7);
    EXPECT_EQ(one.ended, time_at(9'000));
  }
}

TEST_F(HistoryTest, only_root_may_write_entries_of_other_users) {
  HistoryEntry others = entry("aaaaaaaa");
  others.uid = ::geteuid() + 1;
  append(others);
  append(entry("bbbbbbbb"));
  const History history = read();
  EXPECT_EQ(history.entries.size(), ::geteuid() == 0 ? 2U : 1U);
  if (::geteuid() != 0) return;
  ASSERT_EQ(::chown(open_own_folder(archive_)->path.c_str(), 1000, 1000), 0);
  std::filesystem::rename(fmt::format("{}/0", archive_), fmt::format("{}/1000", archive_));
  EXPECT_TRUE(ids().empty());
}

TEST_F(HistoryTest, same_id_of_two_users_is_two_leases) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can write the history of other users";
  for (const uid_t uid : {1000U, 1001U}) {
    HistoryEntry one = entry("aaaaaaaa", uid == 1000 ? Ending::exited : Ending::running);
    one.uid = uid;
    append(one);
  }
  const History history = read();
  ASSERT_EQ(history.entries.size(), 2U);
  EXPECT_EQ(history.entries[1].ending, Ending::running);
}

TEST_F(HistoryTest, follower_reads_new_entries) {
  const auto ends_now = [](const std::string& id) {
    HistoryEntry one = entry(id);
    one.ended = std::chrono::system_clock::now();
    return one;
  };
  append(ends_now("aaaaaaaa"));
  FileFollower follower(archive_);
  EXPECT_TRUE(follower.read_new_entries().empty());
  const HistoryEntry second = ends_now("bbbbbbbb");
  append(second);
  std::ofstream(
      fmt::format("{}/{}", open_own_folder(archive_)->path, month_file_name(second.ended)),
      std::ios::app)
      << "{\"id\":";  // an incomplete line
  auto entries = follower.read_new_entries();
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(entries[0].id, "bbbbbbbb");
  EXPECT_TRUE(follower.read_new_entries().empty());
}

// A follower does not read all of a long history.
TEST_F(HistoryTest, follower_skips_old_months) {
  FileFollower follower(archive_);
  append(entry("aaaaaaaa"));
  EXPECT_TRUE(follower.read_new_entries().empty());
}

}  // namespace
}  // namespace berth
