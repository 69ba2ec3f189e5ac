// Tests of the checks before and after cpp-httplib parses a request.
#include "serve/http_request.h"

#include <gtest/gtest.h>

namespace berth::serve {
namespace {

// The status of the refusal; 0 if the head is accepted.
int sanitize_status(std::string head) {
  const auto refusal = sanitize_head(head);
  return refusal ? refusal->status : 0;
}

TEST(SanitizeHead, RefusesWhatHttplibIgnores) {
  const std::string line = "GET / HTTP/1.1\r\n";
  EXPECT_EQ(sanitize_status(line + "Host: x\r\n\r\n"), 0);
  EXPECT_EQ(sanitize_status(line + "X-Odd:\t a \xff\t\r\n\r\n"), 0);
  for (const char* bad : {"no colon\r\n", ": x\r\n", "na me: x\r\n", "Name : x\r\n", " folded\r\n",
                          "X: a\nY: b\r\n", "X: a\rb\r\n", "X: \x01\r\n", "X: \x7f\r\n"}) {
    EXPECT_EQ(sanitize_status(line + bad + "\r\n"), 400) << bad;
  }
  EXPECT_EQ(sanitize_status(line + std::string("X: \0\r\n\r\n", 8)), 400);
  for (const char* bad : {"GET\r\n", "GET /\r\n", "GET  / HTTP/1.1\r\n", "GET x HTTP/1.1\r\n",
                          "GET /\xc3\xa9 HTTP/1.1\r\n", "\r\n"}) {
    EXPECT_EQ(sanitize_status(std::string(bad) + "\r\n"), 400) << bad;
  }
  EXPECT_EQ(sanitize_status("GET / HTTP/2.0\r\n\r\n"), 505);
  EXPECT_EQ(sanitize_status("GET / HTTP/1.1 x\r\n\r\n"), 505);
}

TEST(SanitizeHead, HttplibReadsWhatWasSent) {
  std::string head = "GET /%41 HTTP/1.1\r\nHost: %41\r\nrAnge: bytes=0-\r\nOrigin: \r\n\r\n";
  EXPECT_FALSE(sanitize_head(head));
  EXPECT_EQ(head, "GET /%41 HTTP/1.1\r\nHost: %2541\r\nOrigin: %20\r\n\r\n");
}

struct ParseResult {
  HttpRequest request;
  std::size_t body_size = 0;
  int status = 0;  // of the refusal
};

ParseResult parse(std::string_view target, const HttpHeaders& headers) {
  ParseResult result;
  const auto refusal = parse_request(target, headers, result.request, result.body_size);
  if (refusal) result.status = refusal->status;
  return result;
}

TEST(ParseRequest, PathQueryAndHeaders) {
  const ParseResult one =
      parse("/a%2f?b=%20?", {{"HOST", "x"}, {"Origin", " "}, {"Accept", "a"}, {"accept", "b"}});
  EXPECT_EQ(one.status, 0);
  EXPECT_EQ(one.request.path, "/a%2f");
  EXPECT_EQ(one.request.query, "b=%20?");
  EXPECT_EQ(one.request.header("host"), "x");
  EXPECT_EQ(one.request.header("origin"), "");
  EXPECT_EQ(one.request.header("accept"), "a");
  EXPECT_TRUE(one.request.keep_alive);
  EXPECT_FALSE(parse("/", {{"Connection", "Close"}}).request.keep_alive);
  EXPECT_EQ(parse("/?a=%", {}).status, 400);
}

TEST(ParseRequest, IgnoresHttplibInternalHeaders) {
  const ParseResult one =
      parse("/", {{"REMOTE_ADDR", "127.0.0.1"}, {"Local_Addr", "10.0.0.1"}, {"REMOTE_PORT", "1"}});
  EXPECT_EQ(one.status, 0);
  EXPECT_TRUE(one.request.headers.empty());
}

TEST(ParseRequest, RefusesAmbiguousBodyLengths) {
  EXPECT_EQ(parse("/", {{"Content-Length", "65536"}}).body_size, kMaxBodySize);
  for (const char* bad : {" ", "+5", "-1", "0x5", "5, 5", "5x"}) {
    EXPECT_EQ(parse("/", {{"Content-Length", bad}}).status, 400) << bad;
  }
  EXPECT_EQ(parse("/", {{"Content-Length", "5"}, {"content-length", "5"}}).status, 400);
  EXPECT_EQ(parse("/", {{"Transfer-Encoding", "identity"}}).status, 400);
  EXPECT_EQ(parse("/", {{"Content-Length", "65537"}}).status, 413);
  EXPECT_EQ(parse("/", {{"Content-Length", "99999999999999999999999"}}).status, 413);
  for (const char* once : {"Host", "Authorization", "Origin"}) {
    EXPECT_EQ(parse("/", {{once, "a"}, {once, "a"}}).status, 400) << once;
  }
  // Proxies may split these; the server reads neither.
  for (const char* often : {"Cookie", "Accept"}) {
    EXPECT_EQ(parse("/", {{often, "a"}, {often, "b"}}).status, 0) << often;
  }
}

TEST(UrlDecode, RefusesIncompleteEscapes) {
  EXPECT_EQ(url_decode("a%2Fb%2f+"), "a/b/+");
  EXPECT_EQ(url_decode("a+b", true), "a b");
  for (const char* bad : {"%", "%2", "a%zz", "%%20"}) EXPECT_FALSE(url_decode(bad)) << bad;
}

TEST(ParseQueryString, KeepsOrder) {
  const auto pairs = parse_query_string("a=1&b=&c=%26");
  ASSERT_TRUE(pairs);
  EXPECT_EQ(*pairs, (QueryParameters{{"a", "1"}, {"b", ""}, {"c", "&"}}));
  EXPECT_TRUE(parse_query_string("")->empty());
  for (const char* bad : {"a", "=1", "a=%", "a=1&&b=2"})
    EXPECT_FALSE(parse_query_string(bad)) << bad;
}

TEST(ParseBodyField, ReturnsTheTextOfAKey) {
  EXPECT_EQ(parse_body_field("{\"reason\": \"fan\"}", "reason"), "fan");
  EXPECT_EQ(parse_body_field("{\"other\": 1}", "reason"), "");
  for (const char* bad : {"", "[]", "\"reason\"", "{", "{\"reason\": 1}", "{\"reason\": null}"}) {
    EXPECT_FALSE(parse_body_field(bad, "reason")) << bad;
  }
}

}  // namespace
}  // namespace berth::serve
