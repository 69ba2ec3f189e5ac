// Lines on their way to a real Redis, and back.
#include "cluster/store/history_stream.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <poll.h>
#include <thread>
#include <unistd.h>

#include "archive/follow_history.h"
#include "archive/history.h"
#include "cluster/redis/testing/server.h"
#include "cluster/store/unsent_history.h"

namespace berth {
namespace {

HistoryEntry entry(const std::string& id, const std::string& host = "here",
                   Ending ending = Ending::exited) {
  HistoryEntry made;
  made.id = id;
  made.uid = 1000;
  made.command = "python train.py";
  made.gpus = {{"GPU-1", "0", "A6000"}};
  made.asked = made.granted = made.ended = std::chrono::system_clock::now();
  made.ending = ending;
  made.host = host;
  made.user = "eve";
  return made;
}

class StreamTest : public ::testing::Test {
 protected:
  StreamTest() : redis_(server_.connect()), session_(server_.url()) {}

  void send(const std::vector<HistoryEntry>& entries) {
    std::vector<std::string> lines;
    lines.reserve(entries.size());
    for (const HistoryEntry& one : entries) lines.push_back(write_entry(one));
    const auto sent = send_lines(session_, server_.url(), lines);
    ASSERT_TRUE(sent) << sent.error().message;
  }
  History read() {
    auto history = read_all_history(server_.url(), {}, [](const HistoryEntry&) { return true; });
    EXPECT_TRUE(history) << history.error().message;
    return std::move(*history);
  }
  std::int64_t length() { return redis_.call({"XLEN", "berth:history"})->integer().value_or(-1); }
  UserFolder folder() { return std::move(*own_folder(place_.path() + "/archive")); }
  std::uintmax_t unsent() { return std::filesystem::file_size(folder().path + "/unsent.jsonl"); }

  testing::RedisServer server_;
  testing::TemporaryFolder place_;
  RedisConnection redis_;
  RedisSession session_;
};

TEST_F(StreamTest, what_was_sent_is_read) {
  send({entry("aaaaaaaa")});
  const History history = read();
  ASSERT_EQ(history.entries.size(), 1U);
  EXPECT_EQ(history.entries[0].host, "here");
  EXPECT_EQ(history.entries[0].user, "eve");
  EXPECT_EQ(history.entries[0].command, "python train.py");
  EXPECT_EQ(history.damaged, 0U);
}

TEST_F(StreamTest, sent_twice_it_counts_once_and_hosts_are_told_apart) {
  send({entry("aaaaaaaa", "here", Ending::running), entry("aaaaaaaa"), entry("aaaaaaaa")});
  send({entry("aaaaaaaa", "there", Ending::running)});
  const History history = read();
  ASSERT_EQ(history.entries.size(), 2U);
  EXPECT_EQ(history.entries[0].ending, Ending::exited);
  EXPECT_EQ(history.entries[1].ending, Ending::running);
}

TEST_F(StreamTest, all_pieces_are_read) {
  std::vector<HistoryEntry> many(5000, entry("aaaaaaaa"));
  for (std::size_t i = 0; i < many.size(); ++i) many[i].id = std::to_string(10'000'000 + i);
  send(many);  // more than one piece
  EXPECT_EQ(read().entries.size(), many.size());
}

TEST_F(StreamTest, what_is_no_line_of_ours_is_damaged) {
  send({entry("aaaaaaaa")});
  HistoryEntry nowhere = entry("bbbbbbbb");
  nowhere.host.clear();
  HistoryEntry odd = entry("cccccccc", "a\x1b[31m");
  HistoryEntry nobody = entry("dddddddd");
  nobody.user.clear();
  send({nowhere, odd, nobody});
  const std::string huge(std::size_t{10} << 20, 'x');
  for (int i = 0; i < 8; ++i) {  // more than one reply may have
    ASSERT_TRUE(redis_.call({"XADD", "berth:history", "*", "line", huge}));
  }
  ASSERT_TRUE(redis_.call({"XADD", "berth:history", "*", "other", "1", "line", "{}"}));
  send({entry("eeeeeeee")});
  const History history = read();
  EXPECT_EQ(history.entries.size(), 2U);
  EXPECT_EQ(history.damaged, 12U);
}

TEST_F(StreamTest, of_another_type_it_is_an_error) {
  ASSERT_TRUE(redis_.call({"SET", "berth:history", "1"}));
  const auto history =
      read_all_history(server_.url(), {}, [](const HistoryEntry&) { return true; });
  ASSERT_FALSE(history);
  EXPECT_EQ(history.error().kind, ErrorKind::io);
}

TEST_F(StreamTest, who_follows_sees_what_is_new) {
  send({entry("aaaaaaaa")});
  StreamFollower follower(server_.url(), *HistoryStream::from_now_on(server_.url()));
  EXPECT_TRUE(follower.next().empty());
  send({entry("bbbbbbbb")});
  pollfd news{follower.news(), POLLIN, 0};
  ASSERT_EQ(::poll(&news, 1, 10'000), 1);
  const auto seen = follower.next();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].id, "bbbbbbbb");
  EXPECT_TRUE(follower.next().empty());
}

TEST_F(StreamTest, what_was_kept_is_sent_once) {
  ASSERT_TRUE(keep_unsent(folder(), write_entry(entry("aaaaaaaa"))));
  ASSERT_TRUE(keep_unsent(folder(), write_entry(entry("bbbbbbbb"))));
  EXPECT_GT(unsent(), 0U);
  ASSERT_TRUE(send_unsent(folder(), server_.url()));
  EXPECT_EQ(unsent(), 0U);
  ASSERT_TRUE(send_unsent(folder(), server_.url()));
  EXPECT_EQ(length(), 2);
}

TEST_F(StreamTest, half_a_line_is_lost_alone) {
  ASSERT_TRUE(keep_unsent(folder(), write_entry(entry("aaaaaaaa"))));
  std::ofstream(folder().path + "/unsent.jsonl", std::ios::app) << "{\"id\":";
  ASSERT_TRUE(keep_unsent(folder(), write_entry(entry("bbbbbbbb"))));
  std::ofstream(folder().path + "/unsent.jsonl", std::ios::app) << "{\"id\":";
  ASSERT_TRUE(send_unsent(folder(), server_.url()));
  EXPECT_EQ(unsent(), 0U);
  const History history = read();
  EXPECT_EQ(history.entries.size(), 2U);
  EXPECT_EQ(history.damaged, 1U);
}

TEST_F(StreamTest, without_a_server_it_stays) {
  const RedisUrl url = server_.url();
  server_.kill();
  ASSERT_TRUE(keep_unsent(folder(), write_entry(entry("aaaaaaaa"))));
  const auto sent = send_unsent(folder(), url);
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().kind, ErrorKind::unavailable);
  EXPECT_GT(unsent(), 0U);
  EXPECT_TRUE(send_unsent(folder(), url));  // it was away a moment ago: nobody waits again
  EXPECT_GT(unsent(), 0U);
}

TEST_F(StreamTest, many_who_keep_and_send_at_once_lose_nothing) {
  constexpr int kThreads = 8;
  constexpr int kEach = 50;
  const std::string archive = place_.path() + "/archive";
  const UserFolder made = folder();
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        const auto mine = own_folder(archive);
        const auto line = write_entry(entry(std::to_string(10'000'000 + t * kEach + i)));
        EXPECT_TRUE(keep_unsent(*mine, line));
        EXPECT_TRUE(send_unsent(*mine, server_.url()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(unsent(), 0U);  // what one left to another was sent by him
  EXPECT_EQ(read().entries.size(), std::size_t{kThreads} * kEach);
}

}  // namespace
}  // namespace berth
