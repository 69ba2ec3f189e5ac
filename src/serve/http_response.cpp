// Builds responses and their headers; see http_response.h.
#include "serve/http_response.h"

#include <array>
#include <fmt/format.h>

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

// Only people read it: clients use the number.
std::string_view reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "";
  }
}

}  // namespace

HttpResponse json_response(SharedText body, int status) {
  HttpResponse response;
  response.status = status;
  response.body = std::move(body);
  return response;
}

HttpResponse json_response(std::string body, int status) {
  return json_response(share_text(std::move(body)), status);
}

HttpResponse error_response(int status, std::string_view text) {
  const Json json{{"error", text}};
  return json_response(to_ascii_json(json) + "\n", status);
}

HttpResponse too_many_connections_response() {
  HttpResponse response = error_response(503, "too many connections; try again in a few seconds");
  response.headers.emplace_back("Retry-After", "3");
  return response;
}

std::string format_response_head(const HttpResponse& response, BodyEnd body_end, bool keep_alive) {
  std::string head =
      fmt::format("HTTP/1.1 {} {}\r\n", response.status, reason_phrase(response.status));
  const auto add = [&](std::string_view name, std::string_view value) {
    head.append(name).append(": ").append(value).append("\r\n");
  };
  bool has_cache_control = false;
  for (const auto& [name, value] : response.headers) {
    has_cache_control = has_cache_control || name == "Cache-Control";
    add(name, value);
  }
  if (!has_cache_control) add("Cache-Control", "no-store");
  for (const auto& [name, value] : kCommonHeaders) add(name, value);
  const bool has_body = response.status != 304;  // not modified: the client has the body
  const bool has_length = body_end == BodyEnd::content_length;
  if (has_body && !(has_length && response.content().empty())) add("Content-Type", response.type);
  if (has_body && has_length) add("Content-Length", std::to_string(response.content().size()));
  add("Connection", keep_alive ? "keep-alive" : "close");
  return head += "\r\n";
}

}  // namespace berth::serve
