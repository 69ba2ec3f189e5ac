// Access control: decides from a request's headers whether the client may view or change anything.
//
// A page of another site, open in the same browser, can send requests to this server. The page
// cannot choose the Host header (unless its own host name resolves to this server's address: DNS
// rebinding), it cannot hide its Origin, and it does not know the token.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "serve/http_request.h"
#include "serve/http_response.h"

namespace berth::serve {

struct AccessRules {
  std::vector<std::string> host_names;  // accepted Host headers, in lower case, without a port
  std::string proxy;                    // public name of a reverse proxy; may have a port
  std::string token;                    // empty: there is no token, and no client can make changes
  bool view_needs_token = false;
  bool allow_changes = false;
};

// Immutable, so every thread may use it.
class AccessControl {
 public:
  explicit AccessControl(AccessRules rules) : rules_(std::move(rules)) {}

  // Each check returns the response that refuses the request, or nullopt if the request may go on.
  //
  // `local` is the address of this server at which the request arrived. It is accepted as a Host:
  // DNS rebinding needs a name, because a browser does not resolve an address.
  std::optional<HttpResponse> check_host(const HttpRequest& request, std::string_view local) const;
  std::optional<HttpResponse> check_view(const HttpRequest& request) const;
  std::optional<HttpResponse> check_change(const HttpRequest& request) const;
  // The list of the server user's jobs, which says more than other users of the host may see.
  std::optional<HttpResponse> check_jobs(const HttpRequest& request) const;
  // The output of these jobs. A token that is only for viewing may have been given to others; only
  // the holder of a token for changes can act as the user anyway.
  std::optional<HttpResponse> check_job_output(const HttpRequest& request) const;

  // Answers POST /session, with which the page of this server checks a token that the user typed.
  // It sets no cookie: a browser would send the cookie to every port of the host, and so to other
  // users' servers there.
  HttpResponse check_token(const HttpRequest& request) const;

 private:
  std::optional<HttpResponse> check_origin(const HttpRequest& request) const;
  bool has_valid_token(const HttpRequest& request) const;

  AccessRules rules_;
};

// Compares in a time that depends only on the length of `one`, the real secret: the time must not
// reveal how much of a guess is right. Two empty strings are not equal.
bool secrets_equal(std::string_view one, std::string_view other);

// 128 random bits in hexadecimal digits. ErrorKind::usage if the kernel does not provide them.
Result<std::string> generate_secret();

// The first line of a file that only this user (or root) can read: 16 to 256 visible ASCII
// characters. ErrorKind::usage otherwise.
Result<std::string> read_token(const std::string& path);

// The host of "NAME:PORT", "[ADDRESS]:PORT" or "NAME", in lower case; nullopt if it has another
// form.
std::optional<std::string> extract_host(std::string_view authority);

}  // namespace berth::serve
