// Checks of Host, Origin and token; see access.h.
#include "serve/access.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "base/unique_fd.h"

namespace berth::serve {
namespace {

bool is_port(std::string_view text) {
  return text.empty() || (text.size() <= 5 && std::all_of(text.begin(), text.end(), [](char c) {
                            return c >= '0' && c <= '9';
                          }));
}

}  // namespace

bool secrets_equal(std::string_view one, std::string_view other) {
  unsigned differs = one.size() == other.size() ? 0 : 1;
  for (std::size_t i = 0; i < one.size(); ++i) {
    const char other_char = other.empty() ? '\0' : other[i % other.size()];
    differs |= static_cast<unsigned char>(one[i] ^ other_char);
  }
  return differs == 0 && !one.empty();
}

Result<std::string> generate_secret() {
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return fail(ErrorKind::io,
                fmt::format("cannot generate a token: {}", ::strerrordesc_np(errno)));
  }
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

Result<std::string> read_token(const std::string& path) {
  const auto token_file_error = [&](const std::string& what) {
    return fail(ErrorKind::usage, fmt::format("serve: --token-file {}: {}", in_quotes(path), what));
  };
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) return token_file_error(::strerrordesc_np(errno));
  struct stat file_info {};
  if (::fstat(file.get(), &file_info) != 0 || !S_ISREG(file_info.st_mode))
    return token_file_error("not a regular file");
  if ((file_info.st_mode & 0077) != 0 ||
      (file_info.st_uid != ::geteuid() && file_info.st_uid != 0)) {
    return token_file_error(
        "it must belong to you or root, and only its owner may read it (chmod 600)");
  }
  std::array<char, 1024> bytes{};
  const auto size = ::read(file.get(), bytes.data(), bytes.size());
  if (size < 0) return token_file_error(::strerrordesc_np(errno));
  std::string_view line(bytes.data(), static_cast<std::size_t>(size));
  line = line.substr(0, line.find('\n'));
  if (line.ends_with('\r')) line.remove_suffix(1);
  const bool visible =
      std::all_of(line.begin(), line.end(), [](char c) { return c > 0x20 && c < 0x7f; });
  if (line.size() < 16 || line.size() > 256 || !visible) {
    return token_file_error(
        "its first line must be 16 to 256 visible ASCII characters; generate one with: openssl "
        "rand -hex 16");
  }
  return std::string(line);
}

std::optional<std::string> extract_host(std::string_view authority) {
  if (authority.empty() || authority.size() > 300) return std::nullopt;
  std::string_view name = authority;
  std::string_view port_part;
  if (authority.front() == '[') {
    const auto end = authority.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    name = authority.substr(0, end + 1);
    port_part = authority.substr(end + 1);
  } else {
    name = authority.substr(0, authority.find(':'));
    port_part = authority.substr(name.size());
  }
  if (!port_part.empty() && (port_part.front() != ':' || !is_port(port_part.substr(1))))
    return std::nullopt;
  std::string host = lower_case(name);
  if (host.ends_with('.')) host.pop_back();  // "host." is the absolute form of the same name
  if (host.empty()) return std::nullopt;
  return host;
}

std::optional<HttpResponse> AccessControl::check_host(const HttpRequest& request,
                                                      std::string_view local) const {
  const auto header = request.header("host");
  const auto host = header ? extract_host(*header) : std::nullopt;
  if (!host) return error_response(400, "the Host header is missing or malformed");
  const bool known = std::find(rules_.host_names.begin(), rules_.host_names.end(), *host) !=
                     rules_.host_names.end();
  if (known || *host == local) return std::nullopt;
  if (!rules_.proxy.empty() && host == extract_host(rules_.proxy)) return std::nullopt;
  return error_response(
      403, fmt::format("{} is not a name of this server; use localhost, its address or its host "
                       "name, or start the server with --behind-proxy NAME",
                       in_quotes(*host)));
}

// A browser names the site whose page sends the request. Other programs send no Origin, and pass.
std::optional<HttpResponse> AccessControl::check_origin(const HttpRequest& request) const {
  const auto origin_error = [] {
    return error_response(403, "the request comes from a page of another site (Origin)");
  };
  const auto site = request.header("sec-fetch-site");
  if (site && *site != "same-origin" && *site != "none") return origin_error();
  const auto origin = request.header("origin");
  if (!origin) return std::nullopt;
  const std::string whole = lower_case(*origin);
  const auto slashes = whole.find("://");
  const std::string_view scheme =
      std::string_view(whole).substr(0, std::min(slashes, whole.size()));
  if (slashes == std::string::npos || (scheme != "http" && scheme != "https"))
    return origin_error();
  const std::string_view authority = std::string_view(whole).substr(slashes + 3);
  // check_host() has accepted the Host, so a page of the same name and port is this server's.
  if (authority == lower_case(request.header("host").value_or(""))) return std::nullopt;
  if (!rules_.proxy.empty() && authority == lower_case(rules_.proxy)) return std::nullopt;
  return origin_error();
}

bool AccessControl::has_valid_token(const HttpRequest& request) const {
  constexpr std::string_view kBearerPrefix = "Bearer ";
  const auto header = request.header("authorization");
  return !rules_.token.empty() && header && header->starts_with(kBearerPrefix) &&
         secrets_equal(rules_.token, header->substr(kBearerPrefix.size()));
}

std::optional<HttpResponse> AccessControl::check_view(const HttpRequest& request) const {
  if (!rules_.view_needs_token || has_valid_token(request)) return std::nullopt;
  return error_response(401, "a token is needed; send the header Authorization: Bearer TOKEN");
}

std::optional<HttpResponse> AccessControl::check_change(const HttpRequest& request) const {
  if (auto refusal = check_origin(request)) return refusal;
  if (!rules_.allow_changes) {
    return error_response(
        403, "this server is read-only; to change things, start it with --allow-changes");
  }
  if (has_valid_token(request)) return std::nullopt;
  return error_response(401, "a change needs the token: Authorization: Bearer TOKEN");
}

std::optional<HttpResponse> AccessControl::check_jobs(const HttpRequest& request) const {
  if (has_valid_token(request)) return std::nullopt;
  if (rules_.token.empty()) {
    return error_response(
        403,
        "this server does not show its user's jobs; start it with --allow-changes, or with "
        "--token-file FILE");
  }
  return error_response(401, "the list of jobs needs the token: Authorization: Bearer TOKEN");
}

std::optional<HttpResponse> AccessControl::check_job_output(const HttpRequest& request) const {
  if (!rules_.allow_changes) {
    return error_response(
        403, "this server does not show the output of jobs; start it with --allow-changes");
  }
  if (has_valid_token(request)) return std::nullopt;
  return error_response(401, "the output of a job needs the token: Authorization: Bearer TOKEN");
}

HttpResponse AccessControl::check_token(const HttpRequest& request) const {
  if (auto refusal = check_origin(request)) return *refusal;
  const auto token = parse_body_field(request.body, "token");
  if (!token || token->empty()) {
    return error_response(400, "the body must be {\"token\": \"...\"}");
  }
  if (!secrets_equal(rules_.token, *token)) return error_response(401, "the token is wrong");
  return json_response(std::string("{\"done\": true}\n"));
}

}  // namespace berth::serve
