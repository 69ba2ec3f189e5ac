// A parsed and checked HTTP request: limited in size, and free of ambiguities.
//
// A proxy and this server must agree on where a request ends and which host it names; otherwise a
// client could smuggle a second request past the proxy. So the parser accepts only the strict form
// of HTTP/1.1 (RFC 9112) and refuses everything else.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/http_response.h"

namespace berth::serve {

constexpr std::size_t kMaxHeadSize = 16 << 10;  // request line and headers
constexpr std::size_t kMaxBodySize = 64 << 10;

struct HttpRequest {
  std::string method;
  std::string path;                            // as sent, without the query: "/api/v1/status"
  std::string query;                           // as sent, without the '?'
  std::map<std::string, std::string> headers;  // by name in lower case
  std::string body;
  bool keep_alive = true;

  // nullopt if the request does not have the header.
  std::optional<std::string_view> header(std::string_view lower_case_name) const;
};

// The answer to a request that is refused before it is routed.
struct HttpRefusal {
  int status = 400;
  std::string text;  // one line
};

// Parses a request line and headers, including the empty line, into `request`, all but its body;
// `body_size` is the number of bytes of the body that follow. nullopt: the request is valid.
std::optional<HttpRefusal> parse_head(std::string_view head, HttpRequest& request,
                                      std::size_t& body_size);

// Decodes "%2f" to "/". nullopt if an escape is invalid. `plus`: decodes '+' to a blank, as in
// queries.
std::optional<std::string> url_decode(std::string_view text, bool plus = false);

// The decoded pairs of "a=1&b=2", in order. nullopt if the query is malformed.
using QueryParameters = std::vector<std::pair<std::string, std::string>>;
std::optional<QueryParameters> parse_query_string(std::string_view query);

// The text of {"KEY": "TEXT"}; empty if the object does not have the key. std::nullopt if the body
// is not an object, or the value is not text.
std::optional<std::string> parse_body_field(std::string_view body, const char* key);

}  // namespace berth::serve
