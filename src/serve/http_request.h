// A request as the routes see it: in bounds, and without what two programs could understand
// differently.
//
// A proxy before us and we must agree on where a request ends and whom it names, or one could be
// smuggled past the proxy. cpp-httplib passes over lines that it does not understand, reads a
// length of "5x" as 5 and decodes header values as if they were URLs. So its input is checked
// before it is parsed, and what it has parsed before anybody believes it.
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
  std::map<std::string, std::string> headers;  // names in lower case, each once
  std::string body;
  bool keep_alive = true;

  // Nothing if it is missing.
  std::optional<std::string_view> header(std::string_view lower_case_name) const;
};

// Why a request is refused before anybody has looked at what it wants.
struct HttpRefusal {
  int status = 400;
  std::string text;  // one line
};

// Makes a request line and headers, up to and with the empty line, fit for cpp-httplib: refuses
// what it would pass over, and keeps from it what it should not read.
std::optional<HttpRefusal> sanitize_head(std::string& head);

// Fills `request` but for the method and the body, of which `body_size` bytes are yet to come.
// `target` and `headers` are as httplib has them.
std::optional<HttpRefusal> parse_request(std::string_view target, const HttpHeaders& headers,
                                         HttpRequest& request, std::size_t& body_size);

// "%2f" as "/". Nothing if it is no valid escape. `plus`: '+' is a blank, as in queries.
std::optional<std::string> url_decode(std::string_view text, bool plus = false);

// "a=1&b=2", decoded, in order. Nothing if it is not well-formed.
using QueryParameters = std::vector<std::pair<std::string, std::string>>;
std::optional<QueryParameters> parse_query_string(std::string_view query);

// The text of {"KEY": "TEXT"}; empty if the object does not have the key. std::nullopt if the body
// is not an object, or the value is not text.
std::optional<std::string> parse_body_field(std::string_view body, const char* key);

}  // namespace berth::serve
