// Tests of the parser of requests.
#include "serve/http_request.h"

#include <gtest/gtest.h>

namespace berth::serve {
namespace {

struct ParseResult {
  HttpRequest request;
  std::size_t body_size = 0;
  int status = 0;  // of the refusal; 0 if the head is accepted
};

ParseResult parse(std::string_view head) {
  ParseResult result;
  const auto refusal = parse_head(head, result.request, result.body_size);
  if (refusal) result.status = refusal->status;
  return result;
}

// A valid request line, these headers, and the empty line.
ParseResult parse_headers(const std::string& headers) {
  return parse("GET / HTTP/1.1\r\n" + headers + "\r\n");
}

TEST(ParseHead, RefusesMalformedLines) {
  EXPECT_EQ(parse_headers("Host: x\r\n").status, 0);
  EXPECT_EQ(parse_headers("").status, 0);
  for (const char* bad : {"no colon\r\n", ": x\r\n", "na me: x\r\n", "Name : x\r\n", " folded\r\n",
                          "X: a\nY: b\r\n", "X: a\rb\r\n", "X: \x01\r\n", "X: \x7f\r\n"}) {
    EXPECT_EQ(parse_headers(bad).status, 400) << bad;
  }
  EXPECT_EQ(parse_headers(std::string("X: \0\r\n", 6)).status, 400);
  for (const char* bad :
       {"GET\r\n", "GET /\r\n", "GET  / HTTP/1.1\r\n", "GET x HTTP/1.1\r\n", "G(T / HTTP/1.1\r\n",
        " / HTTP/1.1\r\n", "GET /\xc3\xa9 HTTP/1.1\r\n", "\r\n"}) {
    EXPECT_EQ(parse(std::string(bad) + "\r\n").status, 400) << bad;
  }
  EXPECT_EQ(parse("GET / HTTP/2.0\r\n\r\n").status, 505);
  EXPECT_EQ(parse("GET / HTTP/1.1 x\r\n\r\n").status, 505);
  for (const char* incomplete :
       {"", "GET / HTTP/1.1", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nX: y"})
    EXPECT_EQ(parse(incomplete).status, 400) << incomplete;
}

TEST(ParseHead, MethodPathQueryAndHeaders) {
  const ParseResult one = parse(
      "BREW /a%2f?b=%20? HTTP/1.1\r\nHOST: %41\r\nOrigin:\r\nAccept: a\r\naccept: b\r\n"
      "X-Odd:\t a \xff\t\r\nrAnge: bytes=0-\r\n\r\n");
  EXPECT_EQ(one.status, 0);
  EXPECT_EQ(one.request.method, "BREW");
  EXPECT_EQ(one.request.path, "/a%2f");
  EXPECT_EQ(one.request.query, "b=%20?");
  EXPECT_EQ(one.request.header("host"), "%41");
  EXPECT_EQ(one.request.header("origin"), "");
  EXPECT_EQ(one.request.header("accept"), "a");
  EXPECT_EQ(one.request.header("x-odd"), "a \xff");
  EXPECT_EQ(one.request.header("content-length"), std::nullopt);
  EXPECT_EQ(parse("GET /?a=% HTTP/1.1\r\n\r\n").status, 400);
}

TEST(ParseHead, KeepAlive) {
  EXPECT_TRUE(parse_headers("").request.keep_alive);
  EXPECT_FALSE(parse_headers("Connection: Close\r\n").request.keep_alive);
  EXPECT_FALSE(parse("GET / HTTP/1.0\r\n\r\n").request.keep_alive);
}

TEST(ParseHead, RefusesAmbiguousRequests) {
  EXPECT_EQ(parse_headers("Content-Length: 65536\r\n").body_size, kMaxBodySize);
  for (const char* bad : {"", " ", "+5", "-1", "0x5", "5, 5", "5x"}) {
    EXPECT_EQ(parse_headers(std::string("Content-Length: ") + bad + "\r\n").status, 400) << bad;
  }
  EXPECT_EQ(parse_headers("Content-Length: 5\r\ncontent-length: 5\r\n").status, 400);
  EXPECT_EQ(parse_headers("Transfer-Encoding: identity\r\n").status, 400);
  EXPECT_EQ(parse_headers("Content-Length: 65537\r\n").status, 413);
  EXPECT_EQ(parse_headers("Content-Length: 99999999999999999999999\r\n").status, 413);
  const auto twice = [](const std::string& name) {
    return parse_headers(name + ": a\r\n" + name + ": b\r\n").status;
  };
  for (const char* once : {"Host", "Authorization", "Origin"}) EXPECT_EQ(twice(once), 400) << once;
  // Proxies may split these; the server reads neither.
  for (const char* often : {"Cookie", "Accept"}) EXPECT_EQ(twice(often), 0) << often;
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
