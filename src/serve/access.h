// Who may see, and who may change: decided from a request's headers, before anything else is done.
//
// A page of another site, open in the same browser, can send requests to us. What it cannot do is
// choose the Host that it names (unless it has pointed its own name at our address: DNS rebinding),
// hide its Origin, or know the token.
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
  std::vector<std::string> host_names;  // that we answer to, in lower case, without a port
  std::string proxy;                    // the name that a proxy is reached by; may have a port
  std::string token;                    // empty: there is none, and nobody may change anything
  bool view_needs_token = false;
  bool allow_changes = false;
};

class AccessControl {
 public:
  explicit AccessControl(AccessRules rules) : rules_(std::move(rules)) {}

  // Nothing if the request may go on. `local` is the address at which it came in: nobody can make a
  // browser take an address for another.
  std::optional<HttpResponse> check_host(const HttpRequest& request, std::string_view local) const;
  std::optional<HttpResponse> check_view(const HttpRequest& request) const;
  std::optional<HttpResponse> check_change(const HttpRequest& request) const;

  // For POST /session: whether the token is right, for our own page. It sets no cookie: a browser
  // would send that to every port of the host, and so to other users' servers there.
  HttpResponse check_token(const HttpRequest& request) const;

  bool changes_allowed() const { return rules_.allow_changes; }

 private:
  std::optional<HttpResponse> check_origin(const HttpRequest& request) const;
  bool has_valid_token(const HttpRequest& request) const;

  AccessRules rules_;
};

// Takes as long whatever is wrong with it: how much of a guess was right must not be measurable.
bool secrets_equal(std::string_view one, std::string_view other);

// 128 bits that nobody can guess, in hexadecimal digits.
Result<std::string> generate_secret();

// The first line of a file that only this user can read.
Result<std::string> read_token(const std::string& path);

// The name of "NAME:PORT", "[ADDRESS]:PORT" or "NAME", in lower case; nothing if it is none.
std::optional<std::string> extract_host(std::string_view authority);

}  // namespace berth::serve
