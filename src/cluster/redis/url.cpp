// Parsing and formatting Redis URLs; see url.h.
#include "cluster/redis/url.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fmt/format.h>
#include <optional>
#include <sys/un.h>

#include "base/quantity.h"
#include "base/text.h"

namespace berth {
namespace {

using std::string_view;

constexpr string_view kTcpScheme = "redis://";
constexpr string_view kUnixScheme = "redis+unix://";
constexpr string_view kSentinelScheme = "redis+sentinel://";
constexpr string_view kTlsScheme = "rediss://";
constexpr std::uint16_t kSentinelPort = 26379;
constexpr std::size_t kMaxPrefixLength = 64;
constexpr std::size_t kMaxHostLength = 255;
constexpr std::size_t kMaxSocketPathLength = sizeof(sockaddr_un::sun_path) - 1;
constexpr std::chrono::seconds kMinTtl(1);
constexpr std::chrono::hours kMaxTtl(1);

// Those of the C library depend on the locale.
constexpr bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool consists_of(string_view text, string_view punctuation) {
  return std::all_of(text.begin(), text.end(), [punctuation](char c) {
    return is_letter(c) || is_digit(c) || punctuation.find(c) != string_view::npos;
  });
}

// `problem` follows the scheme in the message. It is fixed text, never a part of the URL, which may
// be the password.
tl::unexpected<Error> url_error(string_view scheme, string_view problem) {
  return fail(ErrorKind::usage, fmt::format("the Redis URL ({}...) {}", scheme, problem));
}

std::optional<std::string> percent_decode(string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    unsigned byte = 0;
    const string_view digits = text.substr(i + 1, 2);
    const auto [rest, problem] =
        std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
    if (problem != std::errc{} || rest != digits.data() + 2) return std::nullopt;
    out += static_cast<char>(byte);
    i += 2;
  }
  return out;
}

std::string percent_encode(string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain =
        is_letter(c) || is_digit(c) || string_view("-_.~/").find(c) != string_view::npos;
    if (plain) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

// Removes the text before `mark`, and the mark, from `text`. Returns the removed text without the
// mark. Without a mark, that is all of it.
string_view consume_until(string_view& text, char mark) {
  const auto at = std::min(text.find(mark), text.size());
  const string_view head = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return head;
}

class RedisUrlParser {
 public:
  explicit RedisUrlParser(string_view scheme) : scheme_(scheme) {}

  // `rest` is the URL after its scheme.
  Result<RedisUrl> parse(string_view rest) {
    if (rest.find('#') != string_view::npos) {
      return url_error(scheme_, "contains a #; in a user or password write %23");
    }
    const auto at = rest.find('@');
    const auto authority_end = std::min(rest.find_first_of("/?"), rest.size());
    const bool has_user = at != string_view::npos;
    if (has_user && (at > authority_end || rest.find('@', at + 1) != string_view::npos)) {
      return url_error(
          scheme_,
          "has an unexpected @; in a user or password write @ as %40, / as %2F, ? as %3F, % as "
          "%25");
    }
    if (has_user) {
      TRY(parse_login(rest.substr(0, at)));
      rest.remove_prefix(at + 1);
    }
    const auto question = std::min(rest.find('?'), rest.size());
    string_view query = rest.substr(question);
    rest = rest.substr(0, question);
    TRY(scheme_ == kUnixScheme ? parse_socket(rest) : parse_servers(rest));
    if (!query.empty()) TRY(parse_settings(query.substr(1)));
    return std::move(url_);
  }

 private:
  Result<void> parse_login(string_view text) {
    const bool has_password = text.find(':') != string_view::npos;
    const auto user = percent_decode(consume_until(text, ':'));
    const auto password = percent_decode(text);
    if (!user || !password) {
      return url_error(
          scheme_,
          "has a % in its user or password that is not followed by two hexadecimal digits; "
          "write % as %25");
    }
    if (has_password && password->empty()) {
      return url_error(scheme_,
                       "has a colon without a password after it; write USER:PASSWORD@ or USER@");
    }
    if (!has_password && user->empty()) {
      return url_error(scheme_, "has no user before the @; write USER:PASSWORD@HOST");
    }
    url_.user = *user;
    url_.password = *password;
    return {};
  }

  Result<void> parse_socket(string_view text) {
    if (!text.starts_with('/')) {
      return url_error(scheme_,
                       "does not have the absolute path of a socket; write redis+unix:///PATH");
    }
    const auto path = percent_decode(text);
    if (!path || path->find('\0') != std::string::npos || path->back() == '/') {
      return url_error(
          scheme_,
          "has a path that is not valid for a socket; write % as %25, and no / at the end");
    }
    if (path->size() > kMaxSocketPathLength) {
      return fail(
          ErrorKind::usage,
          fmt::format(
              "the Redis URL ({}...) has a socket path of {} bytes, but the kernel allows at "
              "most {}; choose a shorter path",
              scheme_, path->size(), kMaxSocketPathLength));
    }
    url_.socket = *path;
    return {};
  }

  // HOST[:PORT][/DB], or HOST[:PORT],…/MASTER[/DB].
  Result<void> parse_servers(string_view text) {
    const bool by_sentinel = scheme_ == kSentinelScheme;
    string_view hosts = consume_until(text, '/');
    if (!by_sentinel && hosts.find(',') != string_view::npos) {
      return url_error(scheme_, "has several hosts, which only redis+sentinel:// allows");
    }
    do {
      TRY(parse_address(consume_until(hosts, ','), by_sentinel ? kSentinelPort : 6379));
    } while (!hosts.empty());
    if (by_sentinel) {
      const auto master = percent_decode(consume_until(text, '/'));
      if (!master || master->empty() || !consists_of(*master, "-_.:")) {
        return url_error(scheme_,
                         "has no valid master name (letters, digits and -_.:); write "
                         "redis+sentinel://HOST/MASTER");
      }
      url_.master = *master;
    }
    if (text.ends_with('/')) text.remove_suffix(1);
    if (text.empty()) return {};
    return parse_database(text);
  }

  Result<void> parse_address(string_view text, std::uint16_t port) {
    constexpr string_view kAdvice = "write HOST:PORT, or [ADDRESS]:PORT for IPv6";
    const bool bracketed = text.starts_with('[');
    string_view host;
    if (bracketed) {
      text.remove_prefix(1);
      if (text.find(']') == string_view::npos) {
        return url_error(scheme_, fmt::format("has a [ without a ]; {}", kAdvice));
      }
      host = consume_until(text, ']');
      if (!text.empty() && !text.starts_with(':')) {
        return url_error(scheme_,
                         fmt::format("has text after the ] that is not a port; {}", kAdvice));
      }
    } else {
      host = text.substr(0, text.find(':'));
      text.remove_prefix(host.size());
    }
    // A percent sign separates an IPv6 address from its scope (fe80::1%eth0).
    if (host.empty() || host.size() > kMaxHostLength ||
        !consists_of(host, bracketed ? ":.%-_" : ".-_")) {
      return url_error(scheme_,
                       fmt::format("has no host, or a host that is not valid; {}", kAdvice));
    }
    if (!text.empty()) {
      const auto given = parse_integer<std::uint16_t>(text.substr(1));
      if (!given || *given == 0) {
        return url_error(
            scheme_, fmt::format("has a port that is not a number from 1 to 65535; {}", kAdvice));
      }
      port = *given;
    }
    url_.addresses.push_back({std::string(host), port});
    return {};
  }

  Result<void> parse_database(string_view text) {
    const auto given = parse_integer<unsigned>(text);
    if (!given) {
      return url_error(scheme_,
                       "has a database that is not a number; write 0 to 15 (or more, if the "
                       "server has more databases)");
    }
    if (has_database_) return url_error(scheme_, "has two databases; remove one of them");
    has_database_ = true;
    url_.database = *given;
    return {};
  }

  Result<void> parse_settings(string_view text) {
    while (!text.empty()) {
      string_view value = consume_until(text, '&');
      const string_view key = consume_until(value, '=');
      if (key == "db") {
        TRY(parse_database(value));
      } else if (key == "prefix") {
        TRY(parse_prefix(value));
      } else if (key == "ttl") {
        TRY(parse_ttl(value));
      } else {
        return url_error(
            scheme_, "has an unknown setting after the ?; only prefix=, ttl= and db= are allowed");
      }
    }
    return {};
  }

  Result<void> parse_prefix(string_view text) {
    const auto given = percent_decode(text);
    if (!given || given->empty() || given->size() > kMaxPrefixLength ||
        !consists_of(*given, "-_.:")) {
      return url_error(scheme_,
                       "has a prefix that is not valid; write 1 to 64 letters, digits or -_.:");
    }
    if (std::exchange(has_prefix_, true))
      return url_error(scheme_, "has two prefixes; remove one of them");
    url_.prefix = *given;
    return {};
  }

  Result<void> parse_ttl(string_view text) {
    const auto given = parse_duration(text);
    if (!given || *given < kMinTtl || *given > kMaxTtl) {
      return url_error(scheme_, "has a ttl that is not from 1s to 1h; write it like ttl=45s");
    }
    if (std::exchange(has_ttl_, true))
      return url_error(scheme_, "has two ttl settings; remove one of them");
    url_.ttl = std::chrono::duration_cast<std::chrono::milliseconds>(*given);
    return {};
  }

  string_view scheme_;
  RedisUrl url_;
  bool has_database_ = false;
  bool has_prefix_ = false;
  bool has_ttl_ = false;
};

}  // namespace

Result<RedisUrl> parse_redis_url(string_view text) {
  if (text.starts_with(kTlsScheme)) {
    return fail(ErrorKind::usage,
                "the Redis URL (rediss://...) requires TLS, which this build of berth does not "
                "support; make a tunnel with stunnel or ssh -L, and write redis://localhost:PORT");
  }
  for (const string_view scheme : {kTcpScheme, kUnixScheme, kSentinelScheme}) {
    if (text.starts_with(scheme)) return RedisUrlParser(scheme).parse(text.substr(scheme.size()));
  }
  return fail(ErrorKind::usage,
              "the Redis URL does not begin with redis://, redis+unix:// or redis+sentinel://; "
              "write redis://HOST:PORT/DB");
}

std::string format_address(const RedisUrl::Address& address) {
  const bool bracketed = address.host.find_first_of(":%") != std::string::npos;
  return fmt::format("{}{}{}:{}", bracketed ? "[" : "", address.host, bracketed ? "]" : "",
                     address.port);
}

std::string format_redacted_url(const RedisUrl& url) {
  std::string out;
  std::string settings;
  if (!url.socket.empty()) {
    out = fmt::format("{}{}", kUnixScheme, percent_encode(url.socket));
    if (url.database != 0) settings = fmt::format("?db={}", url.database);
  } else {
    out = url.master.empty() ? kTcpScheme : kSentinelScheme;
    for (const auto& address : url.addresses) {
      out +=
          fmt::format("{}{}", &address == url.addresses.data() ? "" : ",", format_address(address));
    }
    if (!url.master.empty()) out += fmt::format("/{}", url.master);
    if (url.database != 0) out += fmt::format("/{}", url.database);
  }
  if (url.prefix != RedisUrl{}.prefix) {
    settings += fmt::format("{}prefix={}", settings.empty() ? "?" : "&", url.prefix);
  }
  return out + settings;
}

}  // namespace berth
