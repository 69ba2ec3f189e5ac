// The protocol on a socket, spoken well, slowly, wrongly, and not at all.
#include "cluster/redis/resp_channel.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/socket.h>
#include <thread>

namespace berth {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLong(60'000);
constexpr milliseconds kShort(20);

// Both ends in one process.
struct Pair {
  Pair() {
    std::array<int, 2> fds{};
    ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data());
    link = std::make_unique<RespChannel>(UniqueFd(fds[0]), "the test");
    server = UniqueFd(fds[1]);
  }
  void say(std::string_view text) const {
    ASSERT_EQ(::send(server.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  std::unique_ptr<RespChannel> link;
  UniqueFd server;
};

TEST(RespChannel, replies_of_all_kinds) {
  const Pair pair;
  pair.say("+OK\r\n:42\r\n$-1\r\n");
  const auto answers = pair.link->exchange(std::vector<RespChannel::Words>(3, {"x"}), kLong);
  ASSERT_TRUE(answers) << answers.error().message;
  EXPECT_EQ((*answers)[0].reply.text(), "OK");
  EXPECT_EQ((*answers)[1].reply.integer(), 42);
  EXPECT_TRUE((*answers)[2].reply.is_nil());
}

TEST(RespChannel, lists_and_errors) {
  const Pair pair;
  using namespace std::string_view_literals;
  pair.say(
      "$3\r\na\0b\r\n*3\r\n:1\r\n*2\r\n$0\r\n\r\n*0\r\n*-1\r\n-ERR no\r\n"
      "*2\r\n:1\r\n-ERR within\r\n-\r\n:7\r\n"sv);
  const auto answers = pair.link->exchange(std::vector<RespChannel::Words>(6, {"x"}), kLong);
  ASSERT_TRUE(answers) << answers.error().message;
  EXPECT_EQ((*answers)[0].reply.text(), std::string("a\0b", 3));
  const auto& list = (*answers)[1].reply.list();
  ASSERT_EQ(list.size(), 3);
  EXPECT_EQ(list[0].integer(), 1);
  ASSERT_EQ(list[1].list().size(), 2);
  EXPECT_FALSE(list[1].list()[0].is_nil());
  EXPECT_TRUE(list[2].is_nil());
  EXPECT_EQ((*answers)[2].error, "ERR no");
  EXPECT_EQ((*answers)[3].error, "ERR within");
  EXPECT_EQ((*answers)[4].error, "") << "an error without words is one nevertheless";
  EXPECT_EQ((*answers)[5].reply.integer(), 7);
  EXPECT_FALSE((*answers)[5].error);
}

TEST(RespChannel, another_kind_than_expected_is_nothing) {
  Reply reply;
  EXPECT_EQ(reply.integer(), std::nullopt);
  EXPECT_EQ(reply.text(), "");
  EXPECT_TRUE(reply.list().empty());
  reply.value = "5";
  EXPECT_EQ(reply.integer(), std::nullopt);
}

TEST(RespChannel, commands_are_sent_as_they_are) {
  using namespace std::string_literals;
  const Pair pair;
  pair.say("+OK\r\n");
  ASSERT_TRUE(pair.link->exchange({{"SET", "k", std::string("\r\n\0", 3)}}, kLong));
  std::array<char, 100> heard{};
  const ssize_t size = ::recv(pair.server.get(), heard.data(), heard.size(), 0);
  EXPECT_EQ(std::string(heard.data(), static_cast<std::size_t>(size)),
            "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\n\r\n\0\r\n"s);
}

TEST(RespChannel, a_reply_byte_by_byte) {
  const Pair pair;
  ASSERT_TRUE(pair.link->send({"BLPOP", "k", "0"}, kLong));
  for (const char byte : std::string_view("*2\r\n$1\r\nk\r\n$2\r\nab\r\n")) {
    const auto early = pair.link->receive();
    ASSERT_TRUE(early);
    ASSERT_FALSE(*early);
    EXPECT_FALSE(pair.link->exchange({{"GET", "k"}}, kLong)) << "its reply would be another's";
    pair.say({&byte, 1});
  }
  const auto answer = pair.link->receive();
  ASSERT_TRUE(answer && *answer);
  EXPECT_EQ((*answer)->reply.list()[1].text(), "ab");
}

TEST(RespChannel, silence_is_away_and_lasts) {
  const Pair pair;
  const auto first = pair.link->exchange({{"GET", "k"}}, kShort);
  ASSERT_FALSE(first);
  EXPECT_EQ(first.error().kind, ErrorKind::unavailable);
  const auto again = pair.link->exchange({{"GET", "k"}}, kLong);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().kind, ErrorKind::unavailable);
  EXPECT_EQ(again.error().message, first.error().message);
  EXPECT_FALSE(pair.link->send({"GET", "k"}, kLong));
  EXPECT_FALSE(pair.link->receive());
  EXPECT_EQ(pair.link->fd(), -1);
}

TEST(RespChannel, who_takes_no_command_is_away) {
  const Pair pair;
  const auto sent = pair.link->send({"SET", "k", std::string(10'000'000, 'x')}, kShort);
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().kind, ErrorKind::unavailable);
}

TEST(RespChannel, an_end_is_away_and_raises_no_signal) {
  Pair pair;
  pair.server.reset();
  for (int i = 0; i < 2; ++i) {
    const auto answers = pair.link->exchange({{"GET", "k"}}, kLong);
    ASSERT_FALSE(answers);
    EXPECT_EQ(answers.error().kind, ErrorKind::unavailable);
  }
  Pair other;
  other.server.reset();
  EXPECT_FALSE(other.link->send({"GET", "k"}, kLong));
}

TEST(RespChannel, last_words_are_heard) {
  Pair pair;
  pair.say("-ERR max number of clients reached\r\n");
  pair.server.reset();
  const auto answers = pair.link->exchange({{"GET", "k"}}, kLong);
  ASSERT_TRUE(answers) << answers.error().message;
  EXPECT_TRUE(answers->front().error);
}

TEST(RespChannel, another_protocol_is_no_redis) {
  for (const char* text :
       {"HTTP/1.1 400 Bad Request\r\n", "SSH-2.0-OpenSSH_9.2\r\n", "\x15\x03\x01", "$x\r\n",
        "$-2\r\n", "*-2\r\n", ":1x\r\n", "*99999999999\r\n",
        "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n"}) {
    const Pair pair;
    pair.say(text);
    const auto answers = pair.link->exchange({{"GET", "k"}}, kLong);
    ASSERT_FALSE(answers) << text;
    EXPECT_EQ(answers.error().kind, ErrorKind::io) << text;
    EXPECT_EQ(pair.link->exchange({{"GET", "k"}}, kLong).error().kind, ErrorKind::io);
  }
}

// A server that has no room for replies reads no more commands before somebody reads them.
TEST(RespChannel, reads_while_it_writes) {
  Pair pair;
  constexpr int kCommands = 1'000;
  std::thread server([&pair] {
    const int fd = pair.server.get();
    ::fcntl(fd, F_SETFL, 0);  // it waits
    const std::string reply = "$10000\r\n" + std::string(10'000, 'y') + "\r\n";
    for (int i = 0; i < kCommands; ++i) {
      if (::send(fd, reply.data(), reply.size(), MSG_NOSIGNAL) < 0) return;
    }
    std::array<char, 65'536> heard{};
    while (::recv(fd, heard.data(), heard.size(), 0) > 0) {
    }
  });
  const std::vector<RespChannel::Words> commands(kCommands, {"ECHO", std::string(10'000, 'x')});
  const auto answers = pair.link->exchange(commands, milliseconds(10'000));
  EXPECT_TRUE(answers) << answers.error().message;
  pair.link.reset();
  server.join();
}

// Says `text` again and again until the link has enough of it.
Error flooded(std::string_view first, std::string_view text) {
  Pair pair;
  std::thread server([&pair, first, text] {
    const auto put = [&pair](std::string_view part) {
      while (!part.empty()) {
        const ssize_t size = ::send(pair.server.get(), part.data(), part.size(), MSG_NOSIGNAL);
        if (size < 0 && errno != EAGAIN) return false;
        if (size > 0) part.remove_prefix(static_cast<std::size_t>(size));
        if (size < 0) std::this_thread::yield();
      }
      return true;
    };
    if (!put(first)) return;
    while (put(text)) {
    }
  });
  const auto answers = pair.link->exchange({{"GET", "k"}}, kLong);
  server.join();
  return answers ? Error{ErrorKind::usage, "answered"} : answers.error();
}

TEST(RespChannel, a_reply_that_is_too_large_is_refused) {
  const Error large = flooded("$999999999\r\n", std::string(1 << 20, 'x'));
  EXPECT_EQ(large.kind, ErrorKind::io);
  EXPECT_NE(large.message.find("larger than 64 MiB"), std::string::npos) << large.message;
  std::string parts;
  for (int i = 0; i < 10'000; ++i) parts += ":1\r\n";
  const Error many = flooded("*99999999\r\n", parts);
  EXPECT_EQ(many.kind, ErrorKind::io);
  EXPECT_NE(many.message.find("more than"), std::string::npos) << many.message;
}

// Bytes that look like the protocol, mostly.
RC_GTEST_PROP(RespChannel, nonsense_is_no_crash, ()) {
  const auto pieces = *rc::gen::container<std::vector<std::string>>(rc::gen::oneOf(
      rc::gen::elementOf(std::vector<std::string>{
          "*", "$", ":", "+", "-", "\r\n", "\r", "\n", "1", "-1", "2", "99999", "*2\r\n", "$1\r\n",
          ":1\r\n", "$-1\r\n", "*-1\r\n", "9223372036854775807", "*1\r\n"}),
      rc::gen::container<std::string>(rc::gen::arbitrary<char>())));
  Pair pair;
  for (const std::string& piece : pieces) pair.say(piece);
  ::shutdown(pair.server.get(), SHUT_WR);
  for (std::size_t i = 0; i <= 2 * pieces.size() + 2; ++i) {
    if (!pair.link->receive()) return;
  }
}

}  // namespace
}  // namespace berth
