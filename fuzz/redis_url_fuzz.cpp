// Fuzzes URLs of Redis servers, from users and configuration files.
#include "cluster/redis/url.h"
#include "fuzz/fuzz.h"

namespace berth {

void fuzz(std::string_view input) {
  const auto url = parse_redis_url(input);
  if (!url) {
    check(is_printable(url.error().message), "the error is printable");
    check(url.error().message.size() < 300, "the error is short");
    return;
  }
  const std::string text = format_redacted_url(*url);
  check(is_printable(text), "what is shown is printable");
  check(text.find('@') == std::string::npos, "neither user nor password is shown");
  const auto again = parse_redis_url(text);
  check(again.has_value(), "what is shown can be parsed");
  check(format_redacted_url(*again) == text, "a URL that is parsed again is shown unchanged");
  check(again->user.empty() && again->password.empty(), "the shown URL has no secret");
  check(again->socket == url->socket && again->master == url->master,
        "the shown URL names the same server");
  check(again->database == url->database && again->prefix == url->prefix,
        "the shown URL names the same keys");
  check(url->ttl >= std::chrono::seconds(1) && url->ttl <= std::chrono::hours(1),
        "ttl is in range");
}

}  // namespace berth
