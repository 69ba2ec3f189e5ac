// Tests connections to a real Redis server, and to servers that are not Redis.
#include "cluster/redis/connection.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cluster/redis/server_error.h"
#include "cluster/redis/session.h"
#include "cluster/redis/testing/fake_server.h"
#include "cluster/redis/testing/redis_server.h"

namespace berth {
namespace {

using testing::contains;
using testing::FakeServer;
using testing::RedisServer;

RedisUrl with_login(RedisUrl url, const std::string& user, const std::string& password) {
  url.user = user;
  url.password = password;
  return url;
}

// Expects open() to fail with a message of one line without the password. Returns the error.
Error open_error(const RedisUrl& url) {
  const auto opened = RedisConnection::open(url);
  EXPECT_FALSE(opened);
  if (opened) return {ErrorKind::usage, "opened"};
  EXPECT_EQ(opened.error().message.find('\n'), std::string::npos);
  if (!url.password.empty()) {
    EXPECT_EQ(opened.error().message.find(url.password), std::string::npos)
        << opened.error().message;
  }
  return opened.error();
}

TEST(RedisConnection, commands_and_replies) {
  const RedisServer server;
  auto redis = server.connect();
  EXPECT_EQ(redis.call({"SET", "k", "v"})->text(), "OK");
  EXPECT_EQ(redis.call({"GET", "k"})->text(), "v");
  EXPECT_TRUE(redis.call({"GET", "none"})->is_nil());
  EXPECT_EQ(redis.call({"INCR", "n"})->integer(), 1);
  EXPECT_EQ(redis.call({"MGET", "k", "n"})->list().size(), 2);
  EXPECT_EQ(redis.call({"CLIENT", "ID"})->integer(), redis.id());
  EXPECT_EQ(redis.call({"CLIENT", "GETNAME"})->text(), "berth");
  EXPECT_EQ(redis.name(), format_redacted_url(server.url()));
  EXPECT_NE(::fcntl(redis.fd(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(RedisConnection, over_tcp) {
  const RedisServer server = RedisServer::on_port();
  auto redis = RedisServer::connect(server.tcp_url());
  EXPECT_EQ(redis.call({"PING"})->text(), "PONG");
  RedisUrl by_name = server.tcp_url();
  by_name.addresses[0].host = "localhost";
  by_name.addresses.insert(by_name.addresses.begin(), {"127.0.0.1", 1});
  EXPECT_TRUE(RedisConnection::open(by_name)) << "the next address is tried";
}

TEST(RedisConnection, command_errors_keep_the_connection_usable) {
  const RedisServer server;
  auto redis = server.connect();
  ASSERT_TRUE(redis.call({"SET", "k", "v"}));
  const auto wrong = redis.call({"LPUSH", "k", "v"});
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().kind, ErrorKind::io);
  EXPECT_TRUE(contains(wrong.error().message, "prefix")) << wrong.error().message;
  EXPECT_EQ(redis.call({"NONSENSE"}).error().kind, ErrorKind::io);
  EXPECT_EQ(redis.call({}).error().kind, ErrorKind::io);
  EXPECT_EQ(redis.call({"GET", "k"})->text(), "v");
}

TEST(RedisConnection, pipelines) {
  const RedisServer server;
  auto redis = server.connect();
  const auto replies = redis.pipeline({{"SET", "k", "1"}, {"INCR", "k"}, {"GET", "k"}});
  ASSERT_TRUE(replies) << replies.error().message;
  EXPECT_EQ((*replies)[1].integer(), 2);
  EXPECT_EQ((*replies)[2].text(), "2");
  EXPECT_TRUE(redis.pipeline({})->empty());
  EXPECT_FALSE(redis.pipeline({{"INCR", "k"}, {"LPUSH", "k", "x"}, {"INCR", "k"}}));
  EXPECT_EQ(redis.call({"GET", "k"})->text(), "4") << "what follows an error is done, too";
}

TEST(RedisConnection, a_pipeline_larger_than_all_buffers) {
  const RedisServer server;
  auto redis = server.connect();
  const std::string value(10'000, 'x');
  std::vector<RedisCommand> commands;
  for (int i = 0; i < 3'000; ++i) commands.push_back({"ECHO", value});
  const auto replies = redis.pipeline(commands);
  ASSERT_TRUE(replies) << replies.error().message;
  ASSERT_EQ(replies->size(), commands.size());
  EXPECT_EQ(replies->back().text(), value);
}

TEST(RedisConnection, large_values) {
  const RedisServer server;
  auto redis = server.connect();
  const std::string value(10'000'000, 'x');
  ASSERT_TRUE(redis.call({"SET", "k", value}));
  EXPECT_EQ(redis.call({"GET", "k"})->text(), value);
  ASSERT_TRUE(redis.call({"SETRANGE", "huge", "70000000", "x"}));
  const auto huge = redis.call({"GET", "huge"});
  ASSERT_FALSE(huge);
  EXPECT_EQ(huge.error().kind, ErrorKind::io);
  EXPECT_EQ(redis.call({"PING"}).error().message, huge.error().message) << "it is dead";
}

TEST(RedisConnection, databases) {
  const RedisServer server;
  RedisUrl url = server.url();
  url.database = 3;
  auto third = RedisServer::connect(url);
  ASSERT_TRUE(third.call({"SET", "k", "v"}));
  EXPECT_TRUE(server.connect().call({"GET", "k"})->is_nil());
  EXPECT_EQ(RedisServer::connect(url).call({"GET", "k"})->text(), "v");
  url.database = 99;
  const Error none = open_error(url);
  EXPECT_EQ(none.kind, ErrorKind::io);
  EXPECT_TRUE(contains(none.message, "database")) << none.message;
}

TEST(RedisConnection, passwords) {
  const RedisServer server({"--requirepass", "Xq7Z right"});
  EXPECT_TRUE(RedisConnection::open(with_login(server.url(), "", "Xq7Z right")));
  EXPECT_TRUE(RedisConnection::open(with_login(server.url(), "default", "Xq7Z right")));
  const Error wrong = open_error(with_login(server.url(), "", "Xq7Z wrong"));
  EXPECT_EQ(wrong.kind, ErrorKind::io);
  EXPECT_TRUE(contains(wrong.message, "USER:PASSWORD@")) << wrong.message;
  const Error none = open_error(server.url());
  EXPECT_EQ(none.kind, ErrorKind::io);
  EXPECT_TRUE(contains(none.message, "password")) << none.message;
  EXPECT_TRUE(contains(none.message, "BERTH_URL=file:")) << none.message;
}

TEST(RedisConnection, users_of_the_acl) {
  const RedisServer server;
  auto admin = server.connect();
  ASSERT_TRUE(
      admin.call({"ACL", "SETUSER", "alice", "on", ">Xq7Zpass", "~berth:*", "+get", "+set"}));
  const RedisUrl url = with_login(server.url(), "alice", "Xq7Zpass");
  auto redis = RedisServer::connect(url);
  EXPECT_TRUE(redis.call({"SET", "berth:k", "v"}));
  const auto command = redis.call({"BLPOP", "berth:k", "0"});
  ASSERT_FALSE(command);
  EXPECT_EQ(command.error().kind, ErrorKind::io);
  EXPECT_TRUE(contains(command.error().message, "ACL SETUSER alice '+blpop'"))
      << command.error().message;
  const auto key = redis.call({"GET", "k"});
  ASSERT_FALSE(key);
  EXPECT_TRUE(contains(key.error().message, "ACL SETUSER alice '~berth:*'")) << key.error().message;
  EXPECT_EQ(open_error(with_login(url, "bob", "Xq7Zpass")).kind, ErrorKind::io);
  EXPECT_EQ(open_error(with_login(url, "alice", "Xq7Zwrong")).kind, ErrorKind::io);
}

TEST(RedisConnection, blocking_pop_receives_a_push) {
  const RedisServer server;
  auto waiter = server.connect();
  auto other = server.connect();
  ASSERT_TRUE(waiter.send({"BLPOP", "k", "0"}));
  const auto early = waiter.receive();
  ASSERT_TRUE(early);
  EXPECT_FALSE(*early);
  EXPECT_EQ(waiter.call({"PING"}).error().kind, ErrorKind::io);
  ASSERT_TRUE(other.call({"LPUSH", "k", "v"}));
  std::optional<Reply> reply;
  while (!reply) {
    pollfd entry{waiter.fd(), POLLIN, 0};
    ASSERT_EQ(::poll(&entry, 1, 60'000), 1);
    auto received = waiter.receive();
    ASSERT_TRUE(received) << received.error().message;
    reply = std::move(*received);
  }
  EXPECT_EQ(reply->list()[1].text(), "v");
  EXPECT_EQ(waiter.call({"PING"})->text(), "PONG");
}

TEST(RedisConnection, unblocked_by_its_id) {
  const RedisServer server;
  auto waiter = server.connect();
  auto other = server.connect();
  ASSERT_TRUE(waiter.send({"BLPOP", "k", "0"}));
  while (other.call({"CLIENT", "UNBLOCK", std::to_string(waiter.id())})->integer() != 1) {
  }
  pollfd entry{waiter.fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&entry, 1, 60'000), 1);
  const auto received = waiter.receive();
  ASSERT_TRUE(received && *received);
  EXPECT_TRUE((*received)->is_nil());
}

TEST(RedisConnection, a_killed_server_is_unavailable) {
  RedisServer server;
  auto idle = server.connect();
  auto waiter = server.connect();
  ASSERT_TRUE(waiter.send({"BLPOP", "k", "0"}));
  server.kill();
  const auto first = idle.call({"PING"});
  ASSERT_FALSE(first);
  EXPECT_EQ(first.error().kind, ErrorKind::unavailable);
  const auto second = idle.pipeline({{"PING"}, {"PING"}});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().message, first.error().message);
  EXPECT_FALSE(idle.send({"PING"}));
  pollfd entry{waiter.fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&entry, 1, 60'000), 1);
  EXPECT_EQ(waiter.receive().error().kind, ErrorKind::unavailable);
  EXPECT_EQ(open_error(server.url()).kind, ErrorKind::unavailable);
}

TEST(RedisConnection, an_unreachable_server_is_unavailable) {
  RedisUrl url;
  url.addresses = {{"127.0.0.1", 1}};
  EXPECT_EQ(open_error(with_login(url, "", "Xq7Z")).kind, ErrorKind::unavailable);
  url.addresses = {{"no-such-host.invalid", 6379}};
  const Error nameless = open_error(with_login(url, "", "Xq7Z"));
  EXPECT_EQ(nameless.kind, ErrorKind::unavailable);
  EXPECT_TRUE(contains(nameless.message, "no-such-host.invalid")) << nameless.message;
  url.socket = "/tmp/no-such-folder/redis.sock";
  EXPECT_EQ(open_error(with_login(url, "", "Xq7Z")).kind, ErrorKind::unavailable);
}

TEST(RedisConnection, a_replica_is_unavailable) {
  const RedisServer server({"--replicaof", "127.0.0.1 1"});
  const Error error = open_error(server.url());
  EXPECT_EQ(error.kind, ErrorKind::unavailable);
  EXPECT_TRUE(contains(error.message, "replica")) << error.message;
}

TEST(RedisConnection, a_master_that_becomes_a_replica_is_unavailable) {
  const RedisServer server;
  auto redis = server.connect();
  auto waiter = server.connect();
  ASSERT_TRUE(waiter.send({"BLPOP", "k", "0"}));
  // The server may read BLPOP after REPLICAOF. Then it replies READONLY at once instead of
  // UNBLOCKED: both are translated to `unavailable`.
  ASSERT_TRUE(redis.call({"REPLICAOF", "127.0.0.1", "1"}));
  EXPECT_EQ(redis.call({"SET", "k", "v"}).error().kind, ErrorKind::unavailable);
  pollfd entry{waiter.fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&entry, 1, 60'000), 1);
  EXPECT_EQ(waiter.receive().error().kind, ErrorKind::unavailable);
}

TEST(RedisConnection, out_of_memory_is_unavailable) {
  const RedisServer server({"--maxmemory", "1"});
  auto redis = server.connect();
  const auto set = redis.call({"SET", "k", "v"});
  ASSERT_FALSE(set);
  EXPECT_EQ(set.error().kind, ErrorKind::unavailable);
  EXPECT_TRUE(redis.call({"GET", "k"})) << "it is as it was";
}

TEST(RedisConnection, too_many_clients_is_unavailable) {
  const RedisServer server;
  auto redis = server.connect();
  ASSERT_TRUE(redis.call({"CONFIG", "SET", "maxclients", "1"}));
  const Error error = open_error(server.url());
  EXPECT_EQ(error.kind, ErrorKind::unavailable);
}

TEST(RedisConnection, a_fork_cannot_use_the_connection) {
  const RedisServer server;
  auto redis = server.connect();
  const pid_t child = ::fork();
  if (child == 0) {
    const auto reply = redis.call({"PING"});
    ::_exit(!reply && reply.error().kind == ErrorKind::unavailable && redis.fd() == -1 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(redis.call({"PING"})->text(), "PONG");
}

TEST(RedisConnection, servers_that_are_not_redis_are_refused) {
  const FakeServer http([](const std::string&) { return "HTTP/1.1 400 Bad Request\r\n\r\n"; });
  EXPECT_EQ(open_error(with_login(http.url(), "", "Xq7Z")).kind, ErrorKind::io);
  const FakeServer friendly([](const std::string&) { return "+OK\r\n"; });
  EXPECT_EQ(open_error(with_login(friendly.url(), "", "Xq7Z")).kind, ErrorKind::io);
  const FakeServer echo([](const std::string& received) { return received; });
  EXPECT_EQ(open_error(with_login(echo.url(), "", "Xq7Z")).kind, ErrorKind::io);
}

TEST(RedisConnection, an_old_redis_is_refused_without_quoting_the_password) {
  const FakeServer old([](const std::string&) {
    return "-ERR unknown command `HELLO`, with args beginning with: `2`, `AUTH`, `a`, `Xq7Z`, \r\n";
  });
  const Error error = open_error(with_login(old.url(), "a", "Xq7Z"));
  EXPECT_EQ(error.kind, ErrorKind::io);
  EXPECT_TRUE(contains(error.message, "older than Redis 6")) << error.message;
  const FakeServer odd([](const std::string&) { return "-ODD AUTH a Xq7Z\r\n"; });
  EXPECT_EQ(open_error(with_login(odd.url(), "a", "Xq7Z")).kind, ErrorKind::io);
  const FakeServer ancient([](const std::string&) {
    return "*6\r\n$7\r\nversion\r\n$5\r\n5.0.9\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n"
           "$6\r\nmaster\r\n";
  });
  EXPECT_TRUE(contains(open_error(ancient.url()).message, "older than Redis 6"));
}

// Other work is skipped for 10 s after a server was unavailable. A wrong password is reported at
// once, each time.
TEST(RedisSession, a_wrong_password_does_not_make_the_server_unavailable) {
  const FakeServer server([](const std::string&) {
    return "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
  });
  RedisSession session(with_login(server.url(), "", "Xq7Z"));
  for (int i = 0; i < 2; ++i) {
    const auto reply = session.call({"PING"});
    ASSERT_FALSE(reply);
    EXPECT_EQ(reply.error().kind, ErrorKind::io) << reply.error().message;
    EXPECT_FALSE(session.was_recently_unavailable());
  }
}

TEST(RedisSession, a_server_that_is_not_there_is_recently_unavailable) {
  RedisUrl url;
  url.socket = "/tmp/no-such-folder/redis.sock";
  RedisSession session(url);
  const auto reply = session.call({"PING"});
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().kind, ErrorKind::unavailable);
  EXPECT_TRUE(session.was_recently_unavailable());
}

TEST(RedisErrors, temporary_and_permanent_errors) {
  const ServerIdentity identity{"redis://head:6379", "alice", "berth"};
  for (const char* text :
       {"LOADING Redis is loading the dataset in memory", "BUSY Redis is busy running a script.",
        "READONLY You can't write against a read only replica.",
        "OOM command not allowed when used memory > 'maxmemory'.",
        "MISCONF Redis is configured to save RDB snapshots", "MASTERDOWN Link with MASTER is down",
        "NOREPLICAS Not enough good replicas to write.", "CLUSTERDOWN The cluster is down",
        "TRYAGAIN Multiple keys request during rehashing of slot", "UNBLOCKED force unblock",
        "ERR max number of clients reached",
        "ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -OOM command not "
        "allowed when used memory > 'maxmemory'."}) {
    EXPECT_EQ(translate_error(text, identity).kind, ErrorKind::unavailable) << text;
  }
  for (const char* text :
       {"", "-", "ERR", "ERR syntax error", "OOMPH", "WRONGPASS invalid username-password pair",
        "NOAUTH Authentication required.", "NOPERM this user has no permissions", "NOPERM '",
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        "NOSCRIPT No matching script.", "MOVED 1 10.0.0.1:6379",
        "ERR Error running script (call to f_1): @user_script:1: oops"}) {
    EXPECT_EQ(translate_error(text, identity).kind, ErrorKind::io) << text;
  }
  const Error odd = translate_error("ERR \x1b[31m\nred", identity);
  EXPECT_EQ(odd.message.find_first_of("\x1b\n"), std::string::npos);
}

}  // namespace
}  // namespace berth
