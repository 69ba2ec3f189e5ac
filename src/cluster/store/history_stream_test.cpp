// Tests sending history lines to a real Redis, and reading them.
#include "cluster/store/history_stream.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <poll.h>
#include <thread>
#include <unistd.h>

#include "archive/follow_history.h"
#include "archive/history.h"
#include "cluster/redis/testing/redis_server.h"
#include "cluster/store/unsent_history.h"

namespace berth {
namespace {

HistoryEntry make_entry(const std::string& id, const std::string& host = "here",
                        Ending ending = Ending::exited) {
  HistoryEntry entry;
  entry.id = id;
  entry.uid = 1000;
  entry.command = "python train.py";
  entry.gpus = {{"GPU-1", "0", "A6000"}};
  entry.asked = entry.granted = entry.ended = std::chrono::system_clock::now();
  entry.ending = ending;
  entry.host = host;
  entry.user = "eve";
  return entry;
}

class HistoryStreamTest : public ::testing::Test {
 protected:
  HistoryStreamTest() : redis_(server_.connect()), session_(server_.url()) {}

  void send(const std::vector<HistoryEntry>& entries) {
    std::vector<std::string> lines;
    lines.reserve(entries.size());
    for (const HistoryEntry& one : entries) lines.push_back(serialize_entry(one));
    const auto sent = append_to_stream(session_, server_.url(), lines);
    ASSERT_TRUE(sent) << sent.error().message;
  }
  History read() {
    auto history = read_all_history(server_.url(), {}, [](const HistoryEntry&) { return true; });
    EXPECT_TRUE(history) << history.error().message;
    return history ? std::move(*history) : History{};
  }
  std::int64_t length() { return redis_.call({"XLEN", "berth:history"})->integer().value_or(-1); }
  UserFolder folder() { return std::move(*open_own_folder(temporary_folder_.path() + "/archive")); }
  std::uintmax_t unsent_bytes() {
    return std::filesystem::file_size(folder().path + "/unsent.jsonl");
  }

  testing::RedisServer server_;
  testing::TemporaryFolder temporary_folder_;
  RedisConnection redis_;
  RedisSession session_;
};

TEST_F(HistoryStreamTest, sent_entries_are_read) {
  send({make_entry("aaaaaaaa")});
  const History history = read();
  ASSERT_EQ(history.entries.size(), 1U);
  EXPECT_EQ(history.entries[0].host, "here");
  EXPECT_EQ(history.entries[0].user, "eve");
  EXPECT_EQ(history.entries[0].command, "python train.py");
  EXPECT_EQ(history.damaged, 0U);
}

TEST_F(HistoryStreamTest, duplicates_count_once_per_host) {
  send({make_entry("aaaaaaaa", "here", Ending::running), make_entry("aaaaaaaa"),
        make_entry("aaaaaaaa")});
  send({make_entry("aaaaaaaa", "there", Ending::running)});
  const History history = read();
  ASSERT_EQ(history.entries.size(), 2U);
  EXPECT_EQ(history.entries[0].ending, Ending::exited);
  EXPECT_EQ(history.entries[1].ending, Ending::running);
}

TEST_F(HistoryStreamTest, all_chunks_are_read) {
  std::vector<HistoryEntry> many(5000, make_entry("aaaaaaaa"));
  for (std::size_t i = 0; i < many.size(); ++i) many[i].id = std::to_string(10'000'000 + i);
  send(many);  // more than one chunk
  EXPECT_EQ(read().entries.size(), many.size());
}

TEST_F(HistoryStreamTest, foreign_lines_are_counted_as_damaged) {
  send({make_entry("aaaaaaaa")});
  HistoryEntry no_host = make_entry("bbbbbbbb");
  no_host.host.clear();
  HistoryEntry bad_host = make_entry("cccccccc", "a\x1b[31m");
  HistoryEntry no_user = make_entry("dddddddd");
  no_user.user.clear();
  send({no_host, bad_host, no_user});
  const std::string huge(std::size_t{10} << 20, 'x');
  for (int i = 0; i < 8; ++i) {  // more than a reply may contain
    ASSERT_TRUE(redis_.call({"XADD", "berth:history", "*", "line", huge}));
  }
  ASSERT_TRUE(redis_.call({"XADD", "berth:history", "*", "other", "1", "line", "{}"}));
  send({make_entry("eeeeeeee")});
  const History history = read();
  EXPECT_EQ(history.entries.size(), 2U);
  EXPECT_EQ(history.damaged, 12U);
}

TEST_F(HistoryStreamTest, a_key_of_another_type_is_an_error) {
  ASSERT_TRUE(redis_.call({"SET", "berth:history", "1"}));
  const auto history =
      read_all_history(server_.url(), {}, [](const HistoryEntry&) { return true; });
  ASSERT_FALSE(history);
  EXPECT_EQ(history.error().kind, ErrorKind::io);
}

TEST_F(HistoryStreamTest, a_follower_sees_new_entries) {
  send({make_entry("aaaaaaaa")});
  StreamFollower follower(server_.url(), *HistoryStream::open_at_end(server_.url()));
  EXPECT_TRUE(follower.read_new_entries().empty());
  send({make_entry("bbbbbbbb")});
  pollfd news{follower.poll_fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&news, 1, 10'000), 1);
  const auto seen = follower.read_new_entries();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].id, "bbbbbbbb");
  EXPECT_TRUE(follower.read_new_entries().empty());
}

TEST_F(HistoryStreamTest, unsent_lines_are_sent_once) {
  ASSERT_TRUE(append_unsent(folder(), serialize_entry(make_entry("aaaaaaaa"))));
  ASSERT_TRUE(append_unsent(folder(), serialize_entry(make_entry("bbbbbbbb"))));
  EXPECT_GT(unsent_bytes(), 0U);
  ASSERT_TRUE(send_unsent(folder(), server_.url()));
  EXPECT_EQ(unsent_bytes(), 0U);
  ASSERT_TRUE(send_unsent(folder(), server_.url()));
  EXPECT_EQ(length(), 2);
}

TEST_F(HistoryStreamTest, a_truncated_line_damages_only_itself) {
  ASSERT_TRUE(append_unsent(folder(), serialize_entry(make_entry("aaaaaaaa"))));
  std::ofstream(folder().path + "/unsent.jsonl", std::ios::app) << "{\"id\":";
  ASSERT_TRUE(append_unsent(folder(), serialize_entry(make_entry("bbbbbbbb"))));
  std::ofstream(folder().path + "/unsent.jsonl", std::ios::app) << "{\"id\":";
  ASSERT_TRUE(send_unsent(folder(), server_.url()));
  EXPECT_EQ(unsent_bytes(), 0U);
  const History history = read();
  EXPECT_EQ(history.entries.size(), 2U);
  EXPECT_EQ(history.damaged, 1U);
}

TEST_F(HistoryStreamTest, unsent_lines_stay_without_a_server) {
  const RedisUrl url = server_.url();
  server_.kill();
  ASSERT_TRUE(append_unsent(folder(), serialize_entry(make_entry("aaaaaaaa"))));
  const auto sent = send_unsent(folder(), url);
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().kind, ErrorKind::unavailable);
  EXPECT_GT(unsent_bytes(), 0U);
  EXPECT_TRUE(send_unsent(folder(), url));  // recently unavailable: not tried again
  EXPECT_GT(unsent_bytes(), 0U);
}

TEST_F(HistoryStreamTest, concurrent_appends_and_sends_lose_nothing) {
  constexpr int kThreads = 8;
  constexpr int kEach = 50;
  const std::string archive = temporary_folder_.path() + "/archive";
  const UserFolder created = folder();
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        const auto own = open_own_folder(archive);
        const auto line = serialize_entry(make_entry(std::to_string(10'000'000 + t * kEach + i)));
        EXPECT_TRUE(append_unsent(*own, line));
        EXPECT_TRUE(send_unsent(*own, server_.url()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(unsent_bytes(), 0U);  // lines that one thread left to another were sent, too
  EXPECT_EQ(read().entries.size(), std::size_t{kThreads} * kEach);
}

}  // namespace
}  // namespace berth
