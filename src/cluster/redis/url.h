// Where a Redis server is and how to be let in, as one line of text.
//
//   redis://[USER[:PASSWORD]@]HOST[:PORT][/DB]
//   redis+unix://[USER[:PASSWORD]@]/PATH[?db=DB]
//   redis+sentinel://[USER[:PASSWORD]@]HOST[:PORT],HOST.../MASTER[/DB]
//
// and behind a question mark: prefix=NAME, ttl=DURATION, db=DB. USER, PASSWORD, PATH and MASTER are
// percent-encoded.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace berth {

struct RedisUrl {
  struct Address {
    std::string host;  // a name, or a number without brackets
    std::uint16_t port = 6379;
  };
  std::vector<Address> addresses;  // the server's, or the sentinels'
  std::string socket;              // the path of a Unix socket, instead
  std::string master;              // what Sentinel calls the server; empty: no Sentinel
  std::string user;                // empty: Redis's "default"
  std::string password;
  unsigned database = 0;
  std::string prefix = "berth";           // of every key
  std::chrono::milliseconds ttl{45'000};  // how long a silent holder counts
};

// Errors are ErrorKind::usage. They repeat nothing of `text` but its scheme: whatever is in the
// wrong place might be the password.
Result<RedisUrl> parse_redis_url(std::string_view text);

// For messages and records: the same URL without user, password and ttl. It can be parsed again.
std::string format_redacted_url(const RedisUrl& url);

// "host:6379", "[::1]:6379".
std::string format_address(const RedisUrl::Address& address);

}  // namespace berth
