// Tests finding the master through a real Sentinel, and parsing its reply.
#include "cluster/redis/sentinel.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <utility>

#include "cluster/redis/connection.h"
#include "cluster/redis/testing/redis_server.h"

namespace berth {
namespace {

using testing::contains;
using testing::RedisServer;

RedisUrl sentinel_url(const std::vector<std::uint16_t>& ports,
                      const std::string& master = "berth-test") {
  RedisUrl url;
  for (const std::uint16_t port : ports) url.addresses.push_back({"127.0.0.1", port});
  url.master = master;
  return url;
}

constexpr std::uint16_t kClosedPort = 1;  // nothing listens on it

TEST(Sentinel, leads_to_the_master) {
  const RedisServer server = RedisServer::on_port();
  const RedisServer sentinel = RedisServer::sentinel_of(server);
  for (const auto& url :
       {sentinel_url({sentinel.port()}), sentinel_url({kClosedPort, sentinel.port()})}) {
    auto redis = RedisConnection::open(url);
    ASSERT_TRUE(redis) << redis.error().message;
    ASSERT_TRUE(redis->call({"SET", "k", "v"}));
    EXPECT_TRUE(contains(redis->name(), std::to_string(server.port()))) << redis->name();
  }
  EXPECT_EQ(server.connect().call({"GET", "k"})->text(), "v");
}

TEST(Sentinel, the_password_is_sent_only_to_sentinels_that_require_it) {
  const RedisServer server = RedisServer::on_port({"--requirepass", "Xq7Z"});
  const RedisServer open_sentinel = RedisServer::sentinel_of(server);
  const RedisServer closed_sentinel = RedisServer::sentinel_of(server, "requirepass Xq7Z");
  const RedisServer other_sentinel = RedisServer::sentinel_of(server, "requirepass another");
  for (const RedisServer* sentinel : {&open_sentinel, &closed_sentinel}) {
    RedisUrl url = sentinel_url({sentinel->port()});
    url.password = "Xq7Z";
    const auto redis = RedisConnection::open(url);
    EXPECT_TRUE(redis) << redis.error().message;
    url.password.clear();
    EXPECT_EQ(RedisConnection::open(url).error().kind, ErrorKind::io);
  }
  RedisUrl url = sentinel_url({other_sentinel.port()});
  url.password = "Xq7Z";
  const auto refused = RedisConnection::open(url);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::io);
  EXPECT_TRUE(contains(refused.error().message, "Sentinel at")) << refused.error().message;
  EXPECT_FALSE(contains(refused.error().message, "Xq7Z")) << refused.error().message;
  url.addresses.push_back({"127.0.0.1", open_sentinel.port()});
  EXPECT_TRUE(RedisConnection::open(url)) << "the next one is asked";
}

TEST(Sentinel, an_unreachable_sentinel_is_unavailable) {
  const auto redis = RedisConnection::open(sentinel_url({kClosedPort}));
  ASSERT_FALSE(redis);
  EXPECT_EQ(redis.error().kind, ErrorKind::unavailable);
  EXPECT_TRUE(contains(redis.error().message, "127.0.0.1:1")) << redis.error().message;
}

TEST(Sentinel, a_missing_master_is_unavailable) {
  RedisServer server = RedisServer::on_port();
  const RedisServer first = RedisServer::sentinel_of(server);
  const RedisServer second = RedisServer::sentinel_of(server);
  const RedisUrl url = sentinel_url({first.port(), second.port()});
  // The server that Sentinel names may be down, or may have become a replica.
  ASSERT_TRUE(server.connect().call({"REPLICAOF", "127.0.0.1", "1"}));
  const auto replica = RedisConnection::open(url);
  if (!replica) {  // unless a Sentinel has made it a master again
    EXPECT_EQ(replica.error().kind, ErrorKind::unavailable);
  }
  server.kill();
  const auto gone = RedisConnection::open(url);
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().kind, ErrorKind::unavailable);
  EXPECT_TRUE(contains(gone.error().message, std::to_string(server.port())))
      << gone.error().message;
}

TEST(Sentinel, only_a_host_and_a_port_are_the_address_of_a_master) {
  const auto parse = [](const std::string& host, const std::string& port) {
    Reply::List elements(2);
    elements[0].value = host;
    elements[1].value = port;
    Reply reply;
    reply.value = std::move(elements);
    return parse_master_address(reply);
  };
  for (const char* port : {"1", "6379", "65535"}) {
    const auto master = parse("10.0.0.1", port);
    ASSERT_TRUE(master) << port;
    EXPECT_EQ(format_address(*master), std::string("10.0.0.1:") + port);
  }
  for (const char* port :
       {"", "0", "65536", "99999999999", "-1", "+1", " 1", "1 ", "6379x", "0x1", "1.0", "port"}) {
    EXPECT_FALSE(parse("10.0.0.1", port)) << port;
  }
  EXPECT_FALSE(parse("", "6379"));
  Reply number;
  number.value = std::int64_t{6379};
  EXPECT_FALSE(parse_master_address(number));
  EXPECT_FALSE(parse_master_address(Reply{}));
  Reply host_alone;
  host_alone.value = Reply::List(1);
  EXPECT_FALSE(parse_master_address(host_alone));
  Reply numeric_port;
  numeric_port.value = Reply::List{Reply{std::string("10.0.0.1")}, number};
  EXPECT_FALSE(parse_master_address(numeric_port));
}

TEST(Sentinel, permanent_errors) {
  const RedisServer server = RedisServer::on_port();
  const RedisServer sentinel = RedisServer::sentinel_of(server);
  const auto unknown = RedisConnection::open(sentinel_url({sentinel.port()}, "other"));
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().kind, ErrorKind::io);
  EXPECT_TRUE(contains(unknown.error().message, "named other")) << unknown.error().message;
  const auto server_asked = RedisConnection::open(sentinel_url({server.port()}));
  ASSERT_FALSE(server_asked);
  EXPECT_EQ(server_asked.error().kind, ErrorKind::io);
  EXPECT_TRUE(contains(server_asked.error().message, "not a Sentinel"))
      << server_asked.error().message;
  const auto sentinel_used = RedisConnection::open(sentinel.tcp_url());
  ASSERT_FALSE(sentinel_used);
  EXPECT_EQ(sentinel_used.error().kind, ErrorKind::io);
  EXPECT_TRUE(contains(sentinel_used.error().message, "redis+sentinel://"))
      << sentinel_used.error().message;
}

}  // namespace
}  // namespace berth
