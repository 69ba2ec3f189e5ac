// An HTTP response: status, headers, and a body that many responses may share.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace berth::serve {

// Text that is rendered once and sent to many clients.
using SharedText = std::shared_ptr<const std::string>;
inline SharedText share_text(std::string text) {
  return std::make_shared<const std::string>(std::move(text));
}

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

constexpr const char* kJsonType = "application/json";

struct HttpResponse {
  int status = 200;
  std::string type = kJsonType;
  SharedText body{};
  std::string_view static_body{};  // the body if `body` is null; refers to a constant
  HttpHeaders headers{};           // in addition to the common ones

  std::string_view content() const { return body ? std::string_view(*body) : static_body; }
};

HttpResponse json_response(SharedText body, int status = 200);
HttpResponse json_response(std::string body, int status = 200);
// The body is {"error": TEXT}.
HttpResponse error_response(int status, std::string_view text);
HttpResponse too_many_connections_response();

// Where the body of a response ends.
enum class BodyEnd : std::uint8_t { content_length, connection_close };

// The status line and the headers, including the empty line. They include security headers that
// restrict what a browser does with the page. There is no CORS header: pages of other sites cannot
// read the response.
std::string format_response_head(const HttpResponse& response, BodyEnd body_end, bool keep_alive);

}  // namespace berth::serve
