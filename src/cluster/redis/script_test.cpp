// Tests scripts by digest and by source on a real server, and SHA-1 against the server's.
#include "cluster/redis/script.h"

#include <gtest/gtest.h>

#include "base/sha1.h"
#include "cluster/redis/testing/redis_server.h"

namespace berth {
namespace {

using testing::RedisServer;

TEST(Sha1, known_digests) {
  EXPECT_EQ(sha1(""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
  EXPECT_EQ(sha1("abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
  EXPECT_EQ(sha1("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
  EXPECT_EQ(sha1(std::string(1'000'000, 'a')), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
}

TEST(Sha1, the_server_has_the_same_at_all_lengths) {
  const RedisServer server;
  auto redis = server.connect();
  std::string source = "return 1 --";
  for (int i = 0; i < 130; ++i) {
    const auto loaded = redis.call({"SCRIPT", "LOAD", source});
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_EQ(sha1(source), loaded->text());
    source += static_cast<char>('\x80' + i % 100);
  }
}

TEST(Script, the_server_learns_it_once) {
  const RedisServer server;
  auto redis = server.connect();
  const Script script("return {KEYS[1], ARGV[1], ARGV[2], redis.call('INCR', KEYS[1])}");
  const auto known = [&] {
    return redis.call({"SCRIPT", "EXISTS", script.sha1()})->list()[0].integer();
  };
  for (int i = 1; i <= 3; ++i) {
    if (i == 3) {
      ASSERT_TRUE(redis.call({"SCRIPT", "FLUSH"}));  // as a restart does
    }
    const auto reply = script.run(redis, {"k"}, {"a", ""});
    ASSERT_TRUE(reply) << reply.error().message;
    ASSERT_EQ(reply->list().size(), 4);
    EXPECT_EQ(reply->list()[1].text(), "a");
    EXPECT_EQ(reply->list()[3].integer(), i) << "done once";
    EXPECT_EQ(known(), 1);
  }
  EXPECT_EQ(
      redis.pipeline({script.evalsha_command({"k"}, {"b", "c"})})->front().list()[3].integer(), 4);
}

TEST(Script, errors) {
  RedisServer server;
  auto redis = server.connect();
  const auto failed = Script("return redis.call('NONSENSE')").run(redis, {}, {});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().kind, ErrorKind::io);
  EXPECT_EQ(Script("this is not Lua").run(redis, {}, {}).error().kind, ErrorKind::io);
  EXPECT_EQ(Script("error('oops')").run(redis, {}, {}).error().kind, ErrorKind::io);
  ASSERT_TRUE(redis.call({"CONFIG", "SET", "maxmemory", "1"}));
  const Script writes("return redis.call('SET', KEYS[1], '1')");
  EXPECT_EQ(writes.run(redis, {"k"}, {}).error().kind, ErrorKind::unavailable);
  ASSERT_TRUE(redis.call({"CONFIG", "SET", "maxmemory", "0"}));
  EXPECT_TRUE(writes.run(redis, {"k"}, {}));
  ASSERT_TRUE(redis.call({"REPLICAOF", "127.0.0.1", "1"}));
  EXPECT_EQ(writes.run(redis, {"k"}, {}).error().kind, ErrorKind::unavailable);
  server.kill();
  EXPECT_EQ(writes.run(redis, {"k"}, {}).error().kind, ErrorKind::unavailable);
}

}  // namespace
}  // namespace berth
