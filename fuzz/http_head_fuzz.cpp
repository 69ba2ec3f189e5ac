// Fuzzes request lines and headers of `berth serve`, up to the decision about access.
#include <algorithm>
#include <sys/socket.h>

#include "base/text.h"
#include "fuzz/fuzz.h"
#include "serve/access.h"
#include "serve/connection.h"
#include "serve/http_request.h"

namespace berth {

using namespace serve;

namespace {

bool is_one_line(std::string_view text) {
  return text.find_first_of(std::string_view("\r\n\0", 3)) == std::string_view::npos;
}

void check_request(const HttpRequest& request) {
  check(request.path.starts_with('/'), "a path is absolute");
  check(is_one_line(request.path) && is_one_line(request.query), "path and query are one line");
  for (const auto& [name, value] : request.headers) {
    check(lower_case(name) == name && is_one_line(value), "each header is one line");
  }
  for (const auto& [name, value] : parse_query_string(request.query).value_or(QueryParameters{})) {
    check(!name.empty(), "each parameter has a name");
  }
  const std::string token = "0123456789abcdef";
  const AccessControl access_control({{"localhost"}, "proxy.example", token, true, true});
  const auto host = request.header("host");
  if (!access_control.check_host(request, "127.0.0.1"))
    check(host.has_value(), "a request names its host");
  const bool shows_token = request.header("authorization") == "Bearer " + token;
  if (!access_control.check_change(request)) check(shows_token, "only the token permits a change");
  if (!access_control.check_view(request)) check(shows_token, "viewers show the token");
}

}  // namespace

void fuzz(std::string_view input) {
  int ends[2];
  check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "there are sockets");
  {
    const UniqueFd client(ends[1]);
    check(::send(client.get(), input.data(), input.size(), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0,
          "the request can be sent");
  }
  HttpConnection connection{UniqueFd(ends[0])};
  std::optional<HttpRefusal> refusal;
  // The client has closed its end, so this never waits.
  auto head = connection.read_head(HttpConnection::Clock::now() + std::chrono::seconds(5), refusal);
  if (!head) return;
  check(head->size() <= kMaxHeadSize, "a head is bounded");
  HttpRequest request;
  std::size_t body_size = 0;
  refusal = parse_head(*head, request, body_size);
  check(refusal || body_size <= kMaxBodySize, "a body is bounded");
  if (!refusal) check_request(request);
  if (refusal) check(refusal->status >= 400 && is_printable(refusal->text), "a refusal says why");
}

}  // namespace berth
