// Builds responses and their headers; see http_response.h.
#include "serve/http_response.h"

#include <algorithm>
#include <array>

#include "base/json.h"

namespace berth::serve {
namespace {

constexpr std::array<std::pair<const char*, const char*>, 4> kCommonHeaders{{
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
     "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
}};

}  // namespace

HttpResponse json_response(SharedText body, int status) {
  HttpResponse answer;
  answer.status = status;
  answer.body = std::move(body);
  return answer;
}

HttpResponse json_response(std::string body, int status) {
  return json_response(share_text(std::move(body)), status);
}

HttpResponse error_response(int status, std::string_view text) {
  const Json json{{"error", text}};
  return json_response(json.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n", status);
}

HttpResponse too_many_connections_response() {
  HttpResponse answer = error_response(503, "too many connections; try again in a few seconds");
  answer.headers.emplace_back("Retry-After", "3");
  return answer;
}

HttpHeaders response_headers(const HttpResponse& answer) {
  HttpHeaders headers = answer.headers;
  const bool cached = std::any_of(headers.begin(), headers.end(),
                                  [](const auto& one) { return one.first == "Cache-Control"; });
  if (!cached) headers.emplace_back("Cache-Control", "no-store");
  for (const auto& [name, value] : kCommonHeaders) headers.emplace_back(name, value);
  return headers;
}

}  // namespace berth::serve
