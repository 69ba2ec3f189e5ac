// Tests the protocol on a socket pair: valid, slow, malformed, too large and missing replies.
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
constexpr milliseconds kLongTimeout(60'000);
constexpr milliseconds kShortTimeout(20);

// A channel, and the server's end of its socket.
struct ConnectedPair {
  ConnectedPair() {
    std::array<int, 2> fds{};
    ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data());
    channel = std::make_unique<RespChannel>(UniqueFd(fds[0]), "the test");
    server = UniqueFd(fds[1]);
  }
  void send_reply(std::string_view text) const {
    ASSERT_EQ(::send(server.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  std::unique_ptr<RespChannel> channel;
  UniqueFd server;
};

TEST(RespChannel, replies_of_all_kinds) {
  const ConnectedPair pair;
  pair.send_reply("+OK\r\n:42\r\n$-1\r\n");
  const auto answers = pair.channel->exchange(std::vector<RedisCommand>(3, {"x"}), kLongTimeout);
  ASSERT_TRUE(answers) << answers.error().message;
  EXPECT_EQ((*answers)[0].reply.text(), "OK");
  EXPECT_EQ((*answers)[1].reply.integer(), 42);
  EXPECT_TRUE((*answers)[2].reply.is_nil());
}

TEST(RespChannel, lists_and_errors) {
  const ConnectedPair pair;
  using namespace std::string_view_literals;
  pair.send_reply(
      "$3\r\na\0b\r\n*3\r\n:1\r\n*2\r\n$0\r\n\r\n*0\r\n*-1\r\n-ERR no\r\n"
      "*2\r\n:1\r\n-ERR within\r\n-\r\n:7\r\n"sv);
  const auto answers = pair.channel->exchange(std::vector<RedisCommand>(6, {"x"}), kLongTimeout);
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

TEST(RespChannel, a_reply_of_an_unexpected_type_reads_as_empty) {
  Reply reply;
  EXPECT_EQ(reply.integer(), std::nullopt);
  EXPECT_EQ(reply.text(), "");
  EXPECT_TRUE(reply.list().empty());
  reply.value = "5";
  EXPECT_EQ(reply.integer(), std::nullopt);
}

TEST(RespChannel, commands_are_binary_safe) {
  using namespace std::string_literals;
  const ConnectedPair pair;
  pair.send_reply("+OK\r\n");
  ASSERT_TRUE(pair.channel->exchange({{"SET", "k", std::string("\r\n\0", 3)}}, kLongTimeout));
  std::array<char, 100> received{};
  const ssize_t size = ::recv(pair.server.get(), received.data(), received.size(), 0);
  EXPECT_EQ(std::string(received.data(), static_cast<std::size_t>(size)),
            "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\n\r\n\0\r\n"s);
}

TEST(RespChannel, a_reply_byte_by_byte) {
  const ConnectedPair pair;
  ASSERT_TRUE(pair.channel->send({"BLPOP", "k", "0"}, kLongTimeout));
  for (const char byte : std::string_view("*2\r\n$1\r\nk\r\n$2\r\nab\r\n")) {
    const auto early = pair.channel->receive();
    ASSERT_TRUE(early);
    ASSERT_FALSE(*early);
    EXPECT_FALSE(pair.channel->exchange({{"GET", "k"}}, kLongTimeout))
        << "its reply would be another's";
    pair.send_reply({&byte, 1});
  }
  const auto answer = pair.channel->receive();
  ASSERT_TRUE(answer && *answer);
  EXPECT_EQ((*answer)->reply.list()[1].text(), "ab");
}

TEST(RespChannel, a_timeout_is_unavailable_and_permanent) {
  const ConnectedPair pair;
  const auto first = pair.channel->exchange({{"GET", "k"}}, kShortTimeout);
  ASSERT_FALSE(first);
  EXPECT_EQ(first.error().kind, ErrorKind::unavailable);
  const auto again = pair.channel->exchange({{"GET", "k"}}, kLongTimeout);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().kind, ErrorKind::unavailable);
  EXPECT_EQ(again.error().message, first.error().message);
  EXPECT_FALSE(pair.channel->send({"GET", "k"}, kLongTimeout));
  EXPECT_FALSE(pair.channel->receive());
  EXPECT_EQ(pair.channel->fd(), -1);
}

TEST(RespChannel, a_server_that_does_not_read_is_unavailable) {
  const ConnectedPair pair;
  const auto sent = pair.channel->send({"SET", "k", std::string(10'000'000, 'x')}, kShortTimeout);
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().kind, ErrorKind::unavailable);
}

TEST(RespChannel, a_closed_connection_is_unavailable_without_sigpipe) {
  ConnectedPair pair;
  pair.server.reset();
  for (int i = 0; i < 2; ++i) {
    const auto answers = pair.channel->exchange({{"GET", "k"}}, kLongTimeout);
    ASSERT_FALSE(answers);
    EXPECT_EQ(answers.error().kind, ErrorKind::unavailable);
  }
  ConnectedPair other;
  other.server.reset();
  EXPECT_FALSE(other.channel->send({"GET", "k"}, kLongTimeout));
}

TEST(RespChannel, an_error_sent_before_the_close_is_read) {
  ConnectedPair pair;
  pair.send_reply("-ERR max number of clients reached\r\n");
  pair.server.reset();
  const auto answers = pair.channel->exchange({{"GET", "k"}}, kLongTimeout);
  ASSERT_TRUE(answers) << answers.error().message;
  EXPECT_TRUE(answers->front().error);
}

TEST(RespChannel, another_protocol_is_an_io_error) {
  for (const char* text :
       {"HTTP/1.1 400 Bad Request\r\n", "SSH-2.0-OpenSSH_9.2\r\n", "\x15\x03\x01", "$x\r\n",
        "$-2\r\n", "*-2\r\n", ":1x\r\n", "*99999999999\r\n",
        "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n"}) {
    const ConnectedPair pair;
    pair.send_reply(text);
    const auto answers = pair.channel->exchange({{"GET", "k"}}, kLongTimeout);
    ASSERT_FALSE(answers) << text;
    EXPECT_EQ(answers.error().kind, ErrorKind::io) << text;
    EXPECT_EQ(pair.channel->exchange({{"GET", "k"}}, kLongTimeout).error().kind, ErrorKind::io);
  }
}

// A server that has no room for replies reads no commands until its client reads the replies.
TEST(RespChannel, reads_while_it_writes) {
  ConnectedPair pair;
  constexpr int kCommands = 1'000;
  std::thread server([&pair] {
    const int fd = pair.server.get();
    ::fcntl(fd, F_SETFL, 0);  // blocking
    const std::string reply = "$10000\r\n" + std::string(10'000, 'y') + "\r\n";
    for (int i = 0; i < kCommands; ++i) {
      if (::send(fd, reply.data(), reply.size(), MSG_NOSIGNAL) < 0) return;
    }
    std::array<char, 65'536> received{};
    while (::recv(fd, received.data(), received.size(), 0) > 0) {
    }
  });
  const std::vector<RedisCommand> commands(kCommands, {"ECHO", std::string(10'000, 'x')});
  const auto answers = pair.channel->exchange(commands, milliseconds(10'000));
  EXPECT_TRUE(answers) << answers.error().message;
  pair.channel.reset();
  server.join();
}

// Sends `first`, then `text` again and again until the channel closes the connection. Returns the
// channel's error.
Error flood_with(std::string_view first, std::string_view text) {
  ConnectedPair pair;
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
  const auto answers = pair.channel->exchange({{"GET", "k"}}, kLongTimeout);
  server.join();
  return answers ? Error{ErrorKind::usage, "answered"} : answers.error();
}

TEST(RespChannel, a_reply_that_is_too_large_is_refused) {
  const Error large = flood_with("$999999999\r\n", std::string(1 << 20, 'x'));
  EXPECT_EQ(large.kind, ErrorKind::io);
  EXPECT_NE(large.message.find("larger than 64 MiB"), std::string::npos) << large.message;
  std::string parts;
  for (int i = 0; i < 10'000; ++i) parts += ":1\r\n";
  const Error many = flood_with("*99999999\r\n", parts);
  EXPECT_EQ(many.kind, ErrorKind::io);
  EXPECT_NE(many.message.find("more than"), std::string::npos) << many.message;
}

TEST(RespChannel, lists_nested_too_deeply_are_refused) {
  std::string lists;
  for (int i = 0; i < 100'000; ++i) lists += "*1\r\n";
  const Error error = flood_with("", lists);
  EXPECT_EQ(error.kind, ErrorKind::io);
}

// Most of the bytes look like the protocol, of which hiredis 0.14 knows the older part (RESP2).
RC_GTEST_PROP(RespChannel, arbitrary_bytes_do_not_crash, ()) {
  const auto pieces = *rc::gen::container<std::vector<std::string>>(rc::gen::oneOf(
      rc::gen::elementOf(std::vector<std::string>{
          "*", "$", ":", "+", "-", "\r\n", "\r", "\n", "1", "-1", "2", "99999", "*2\r\n", "$1\r\n",
          ":1\r\n", "$-1\r\n", "*-1\r\n", "9223372036854775807", "*1\r\n"}),
      rc::gen::elementOf(std::vector<std::string>{"#t\r\n", ",1.5\r\n", ",inf\r\n", "_\r\n",
                                                  "(12\r\n", "%1\r\n", "~2\r\n", ">1\r\n",
                                                  "=5\r\ntxt:a\r\n"}),
      rc::gen::container<std::string>(rc::gen::arbitrary<char>())));
  ConnectedPair pair;
  for (const std::string& piece : pieces) pair.send_reply(piece);
  ::shutdown(pair.server.get(), SHUT_WR);
  for (std::size_t i = 0; i <= 2 * pieces.size() + 2; ++i) {
    if (!pair.channel->receive()) return;
  }
}

}  // namespace
}  // namespace berth
