// Tests URLs in all their forms, and that no message contains a part of a password.
#include "cluster/redis/url.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace berth {
namespace {

// The parsed URL in one line; "error" if it is refused.
std::string describe_url(std::string_view text) {
  const auto url = parse_redis_url(text);
  if (!url) return "error";
  std::string out;
  for (const auto& address : url->addresses) out += format_address(address) + " ";
  if (!url->socket.empty()) out += "socket " + url->socket + " ";
  if (!url->master.empty()) out += "master " + url->master + " ";
  if (!url->user.empty()) out += "user " + url->user + " ";
  if (!url->password.empty()) out += "password " + url->password + " ";
  return out + "db " + std::to_string(url->database);
}

TEST(RedisUrl, forms) {
  EXPECT_EQ(describe_url("redis://head"), "head:6379 db 0");
  EXPECT_EQ(describe_url("redis://head/"), "head:6379 db 0");
  EXPECT_EQ(describe_url("redis://head:7000/3"), "head:7000 db 3");
  EXPECT_EQ(describe_url("redis://head?db=3"), "head:6379 db 3");
  EXPECT_EQ(describe_url("redis://10.0.0.1:1"), "10.0.0.1:1 db 0");
  EXPECT_EQ(describe_url("redis://[::1]"), "[::1]:6379 db 0");
  EXPECT_EQ(describe_url("redis://[fe80::1%eth0]:7000/1"), "[fe80::1%eth0]:7000 db 1");
  EXPECT_EQ(describe_url("redis://alice@head"), "head:6379 user alice db 0");
  EXPECT_EQ(describe_url("redis://alice:secret@head:7000/2"),
            "head:7000 user alice password secret db 2");
  EXPECT_EQ(describe_url("redis://:secret@head"), "head:6379 password secret db 0");
  EXPECT_EQ(describe_url("redis://a%40b:p%3A%2F%25%40:x@head"),
            "head:6379 user a@b password p:/%@:x db 0");
  EXPECT_EQ(describe_url("redis+unix:///run/redis.sock"), "socket /run/redis.sock db 0");
  EXPECT_EQ(describe_url("redis+unix:///run/a%20b.sock?db=4"), "socket /run/a b.sock db 4");
  EXPECT_EQ(describe_url("redis+unix://alice:secret@/run/redis.sock"),
            "socket /run/redis.sock user alice password secret db 0");
  EXPECT_EQ(describe_url("redis+sentinel://s1/gpus"), "s1:26379 master gpus db 0");
  EXPECT_EQ(describe_url("redis+sentinel://a:b@s1:1,s2,[::1]:3/gpus/5"),
            "s1:1 s2:26379 [::1]:3 master gpus user a password b db 5");
}

TEST(RedisUrl, settings) {
  const auto plain = parse_redis_url("redis://head");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->prefix, "berth");
  EXPECT_EQ(plain->ttl, std::chrono::seconds(45));
  const auto full = parse_redis_url("redis://head/1?prefix=lab:gpu-1_.x&ttl=1.5s");
  ASSERT_TRUE(full);
  EXPECT_EQ(full->prefix, "lab:gpu-1_.x");
  EXPECT_EQ(full->ttl, std::chrono::milliseconds(1500));
}

TEST(RedisUrl, malformed_urls_are_refused) {
  for (const std::string text : {"",
                                 "redis",
                                 "redis:",
                                 "redis://",
                                 "redis:///1",
                                 "redis://:6379",
                                 "redis://@head",
                                 "redis://alice:@head",
                                 "redis://head:",
                                 "redis://head:0",
                                 "redis://head:65536",
                                 "redis://head:-1",
                                 "redis://head:+1",
                                 "redis://head:1x",
                                 "redis://head/x",
                                 "redis://head/-1",
                                 "redis://head/99999999999",
                                 "redis://head/1/2",
                                 "redis://head/1?db=1",
                                 "redis://hea d",
                                 "redis://head\n",
                                 "redis://hea\x1b[31md",
                                 "redis://[::1",
                                 "redis://[::1]x",
                                 "redis://[]",
                                 "redis://::1",
                                 "redis://h1,h2",
                                 "redis://a@b@head",
                                 "redis://a:b/c@head",
                                 "redis://a:b#c@head",
                                 "redis://a:%4@head",
                                 "redis://a:%@head",
                                 "redis://a:%zz@head",
                                 "redis://head?prefix=",
                                 "redis://head?prefix=a b",
                                 "redis://head?prefix=a*",
                                 "redis://head?prefix=a&prefix=b",
                                 "redis://head?ttl=0s",
                                 "redis://head?ttl=500ms",
                                 "redis://head?ttl=2h",
                                 "redis://head?ttl=45",
                                 "redis://head?ttl=2s&ttl=3s",
                                 "redis://head?tls=1",
                                 "redis://head?=",
                                 "redis+unix://",
                                 "redis+unix:///",
                                 "redis+unix://run/redis.sock",
                                 "redis+unix:///a%00b",
                                 "redis+sentinel://s1",
                                 "redis+sentinel://s1/",
                                 "redis+sentinel:///gpus",
                                 "redis+sentinel://s1,,s2/gpus",
                                 "redis+sentinel://s1/a b",
                                 "redis+sentinel://s1/gpus/x",
                                 "http://head",
                                 "REDIS://head",
                                 "redis+tls://head"}) {
    const auto url = parse_redis_url(text);
    ASSERT_FALSE(url) << text;
    EXPECT_EQ(url.error().kind, ErrorKind::usage) << text;
    EXPECT_EQ(url.error().message.find('\n'), std::string::npos) << text;
    EXPECT_NE(url.error().message.find("URL"), std::string::npos) << text;
  }
  EXPECT_FALSE(parse_redis_url("redis://head?prefix=" + std::string(65, 'a')));
  EXPECT_TRUE(parse_redis_url("redis://head?prefix=" + std::string(64, 'a')));
  EXPECT_FALSE(parse_redis_url("redis+unix:///" + std::string(107, 'a')));
  EXPECT_TRUE(parse_redis_url("redis+unix:///" + std::string(106, 'a')));
  EXPECT_FALSE(parse_redis_url("redis://" + std::string(1'000'000, 'a')));
}

TEST(RedisUrl, tls_is_explained) {
  const auto url = parse_redis_url("rediss://:secret@head");
  ASSERT_FALSE(url);
  for (const char* word : {"TLS", "stunnel", "ssh -L", "redis://localhost:PORT"}) {
    EXPECT_NE(url.error().message.find(word), std::string::npos) << word;
  }
}

TEST(RedisUrl, redacted_urls_have_no_secrets_and_parse_to_the_same) {
  for (const std::string text :
       {"redis://head:6379", "redis://[::1]:7000/3?prefix=lab", "redis://[a%b]:6379",
        "redis+unix:///run/a%20b?db=4&prefix=x", "redis+unix:///run/redis.sock",
        "redis+sentinel://s1:26379,s2:1/gpus/5"}) {
    auto url = parse_redis_url(text);
    ASSERT_TRUE(url) << text;
    url->user = "alice";
    url->password = "secret";
    EXPECT_EQ(format_redacted_url(*url), text);
  }
}

// Every password below begins with this, and no message of Berth contains it by chance.
constexpr const char* kSecret = "Xq7Z";

RC_GTEST_PROP(RedisUrl, no_message_has_a_password_in_it, ()) {
  // A password with characters that users put in and forget to encode.
  const auto tail = *rc::gen::container<std::string>(
      rc::gen::elementOf(std::string(":/@?#[]%&=,+ aZ09.-\n\x1b\xff")));
  const auto before = *rc::gen::elementOf(std::vector<std::string>{
      "redis://alice:", "redis://:", "redis://",
      "redis+unix://a:", "redis+sentinel://a:", "rediss://:", "redis:", "redsi://a:", "",
      "redis://a:b?ttl=", "redis://h?prefix=", "redis://h?", "redis://h:", "redis://h/",
      "redis+sentinel://h/", "redis+sentinel://h/m/"});
  const auto after = *rc::gen::elementOf(std::vector<std::string>{
      "@head:6379/0", "@head", "@/run/redis.sock", "@s1,s2/gpus", "head", "", "@head:x", "@head/x",
      "@head?ttl=1y", "@head?prefix=*", "@", "/", "@@", "@[::1"});
  const auto url = parse_redis_url(before + kSecret + tail + after);
  if (!url) RC_ASSERT(url.error().message.find(kSecret) == std::string::npos);
  if (url && url->password.find(kSecret) != std::string::npos) {
    RC_ASSERT(format_redacted_url(*url).find(kSecret) == std::string::npos);
  }
}

RC_GTEST_PROP(RedisUrl, percent_encoded_passwords_round_trip, (const std::string& password)) {
  std::string encoded;
  constexpr const char* kDigits = "0123456789abcdef";
  for (const char c : password) {
    const auto byte = static_cast<unsigned char>(c);
    encoded += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
  }
  RC_PRE(!password.empty());
  const auto url = parse_redis_url("redis://u:" + encoded + "@head");
  RC_ASSERT(url.has_value());
  RC_ASSERT(url->password == password);
}

}  // namespace
}  // namespace berth
