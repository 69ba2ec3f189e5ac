// What is sent back for a request: a status, a body that many answers may share, and the headers
// that every answer has.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace berth::serve {

// Rendered once, sent to many.
using SharedText = std::shared_ptr<const std::string>;
using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

constexpr const char* kJsonType = "application/json";

struct HttpResponse {
  int status = 200;
  std::string type = kJsonType;
  SharedText body{};
  std::string_view static_body{};  // instead of `body`: what lasts as long as the program
  HttpHeaders headers{};           // beside those that all have

  std::string_view content() const { return body ? std::string_view(*body) : static_body; }
};

HttpResponse json_response(SharedText body, int status = 200);
HttpResponse json_response(std::string body, int status = 200);
// {"error": TEXT}
HttpResponse error_response(int status, std::string_view text);
// To one too many.
HttpResponse too_many_connections_response();

// All headers but those of type, length and connection: also those that keep browsers from doing
// more with a page than showing it. There is none that would let another site's page read it
// (CORS).
HttpHeaders response_headers(const HttpResponse& answer);

}  // namespace berth::serve
