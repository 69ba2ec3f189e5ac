// Tests of the access checks: Host, Origin and token.
#include "serve/access.h"

#include <gtest/gtest.h>

namespace berth::serve {
namespace {

AccessRules rules() {
  AccessRules some;
  some.host_names = {"localhost", "127.0.0.1", "[::1]"};
  some.token = "0123456789abcdef";
  some.allow_changes = true;
  return some;
}

HttpRequest with(std::map<std::string, std::string> headers) {
  HttpRequest request;
  request.headers = std::move(headers);
  return request;
}

TEST(ExtractHost, RemovesOnlyThePort) {
  EXPECT_EQ(extract_host("LocalHost:80"), "localhost");
  EXPECT_EQ(extract_host("localhost."), "localhost");
  EXPECT_EQ(extract_host("[::1]:80"), "[::1]");
  EXPECT_EQ(extract_host("a:"), "a");
  for (const char* bad : {"", ":80", "a:b", "[::1", "[::1]x", "a:80:80", "."}) {
    EXPECT_FALSE(extract_host(bad)) << bad;
  }
}

TEST(SecretsEqual, AcceptsOnlyEqualSecrets) {
  EXPECT_TRUE(secrets_equal("abc", "abc"));
  for (const char* other : {"", "ab", "abd", "abcabc", "abca", "xbc"}) {
    EXPECT_FALSE(secrets_equal("abc", other)) << other;
  }
  EXPECT_FALSE(secrets_equal("", ""));
}

TEST(GenerateSecret, IsLongAndUnique) {
  const auto one = generate_secret();
  const auto other = generate_secret();
  ASSERT_TRUE(one && other);
  EXPECT_EQ(one->size(), 32U);
  EXPECT_NE(*one, *other);
}

TEST(AccessControl, AChangeNeedsTokenAndOrigin) {
  const AccessControl access_control(rules());
  const std::string right = "Bearer 0123456789abcdef";
  const std::string host = "localhost:1";
  EXPECT_FALSE(access_control.check_change(with({{"host", host}, {"authorization", right}})));
  EXPECT_FALSE(access_control.check_change(
      with({{"host", host}, {"authorization", right}, {"origin", "http://localhost:1"}})));
  EXPECT_EQ(access_control.check_change(with({{"host", host}}))->status, 401);
  for (const char* origin : {"http://localhost", "http://evil", "null", "http://localhost:12"}) {
    const auto no = access_control.check_change(
        with({{"host", host}, {"authorization", right}, {"origin", origin}}));
    ASSERT_TRUE(no) << origin;
    EXPECT_EQ(no->status, 403);
  }
}

TEST(AccessControl, WithoutAllowChangesTheTokenPermitsNoChange) {
  AccessRules some = rules();
  some.allow_changes = false;
  const auto no = AccessControl(some).check_change(
      with({{"host", "localhost"}, {"authorization", "Bearer 0123456789abcdef"}}));
  ASSERT_TRUE(no);
  EXPECT_EQ(no->status, 403);
}

TEST(AccessControl, WithoutAConfiguredTokenNoTokenIsAccepted) {
  AccessRules some = rules();
  some.token.clear();
  some.view_needs_token = true;
  EXPECT_TRUE(AccessControl(some).check_view(with({{"authorization", "Bearer "}})));
  EXPECT_TRUE(AccessControl(some).check_change(with({{"authorization", "Bearer "}})));
}

}  // namespace
}  // namespace berth::serve
