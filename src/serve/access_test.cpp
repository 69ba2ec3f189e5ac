// Tests of who may see and change.
#include "serve/access.h"

#include <gtest/gtest.h>

namespace berth {
namespace {

GuardRules rules() {
  GuardRules some;
  some.names = {"localhost", "127.0.0.1", "[::1]"};
  some.token = "0123456789abcdef";
  some.changes = true;
  return some;
}

HttpRequest with(std::map<std::string, std::string> headers) {
  HttpRequest request;
  request.headers = std::move(headers);
  return request;
}

TEST(RedisHostStore, TakesPortsOffAndNothingElse) {
  EXPECT_EQ(host_part("LocalHost:80"), "localhost");
  EXPECT_EQ(host_part("localhost."), "localhost");
  EXPECT_EQ(host_part("[::1]:80"), "[::1]");
  EXPECT_EQ(host_part("a:"), "a");
  for (const char* bad : {"", ":80", "a:b", "[::1", "[::1]x", "a:80:80", "."}) {
    EXPECT_FALSE(host_part(bad)) << bad;
  }
}

TEST(SameSecret, OnlyTheSame) {
  EXPECT_TRUE(same_secret("abc", "abc"));
  for (const char* other : {"", "ab", "abd", "abcabc", "abca", "xbc"}) {
    EXPECT_FALSE(same_secret("abc", other)) << other;
  }
  EXPECT_FALSE(same_secret("", ""));
}

TEST(MakeSecret, IsLongAndNeverTheSame) {
  const auto one = make_secret();
  const auto other = make_secret();
  ASSERT_TRUE(one && other);
  EXPECT_EQ(one->size(), 32U);
  EXPECT_NE(*one, *other);
}

TEST(Guard, AChangeNeedsTokenAndOrigin) {
  const Guard guard(rules());
  const std::string right = "Bearer 0123456789abcdef";
  const std::string host = "localhost:1";
  EXPECT_FALSE(guard.check_change(with({{"host", host}, {"authorization", right}})));
  EXPECT_FALSE(guard.check_change(
      with({{"host", host}, {"authorization", right}, {"origin", "http://localhost:1"}})));
  EXPECT_EQ(guard.check_change(with({{"host", host}}))->status, 401);
  for (const char* origin : {"http://localhost", "http://evil", "null", "http://localhost:12"}) {
    const auto no =
        guard.check_change(with({{"host", host}, {"authorization", right}, {"origin", origin}}));
    ASSERT_TRUE(no) << origin;
    EXPECT_EQ(no->status, 403);
  }
}

TEST(Guard, WithoutTheFlagEvenTheTokenChangesNothing) {
  GuardRules some = rules();
  some.changes = false;
  const auto no = Guard(some).check_change(
      with({{"host", "localhost"}, {"authorization", "Bearer 0123456789abcdef"}}));
  ASSERT_TRUE(no);
  EXPECT_EQ(no->status, 403);
}

TEST(Guard, WhereThereIsNoTokenNoneIsRight) {
  GuardRules some = rules();
  some.token.clear();
  some.token_to_view = true;
  EXPECT_TRUE(Guard(some).check_view(with({{"authorization", "Bearer "}})));
  EXPECT_TRUE(Guard(some).check_change(with({{"authorization", "Bearer "}})));
}

}  // namespace
}  // namespace berth
