// Redis URLs: the address of a server and the login, as one line of text.
//
//   redis://[USER[:PASSWORD]@]HOST[:PORT][/DB]
//   redis+unix://[USER[:PASSWORD]@]/PATH[?db=DB]
//   redis+sentinel://[USER[:PASSWORD]@]HOST[:PORT],HOST.../MASTER[/DB]
//
// Each may end with parameters after a question mark: prefix=NAME, ttl=DURATION, db=DB. USER,
// PASSWORD, PATH and MASTER are percent-encoded.
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
    std::string host;  // a name, or an IP address without brackets
    std::uint16_t port = 6379;
  };
  std::vector<Address> addresses;  // of the server, or of the Sentinels
  std::string socket;              // the path of a Unix socket; then there are no addresses
  std::string master;              // the server's name in Sentinel; empty: no Sentinel
  std::string user;                // empty: the user "default" of Redis
  std::string password;
  unsigned database = 0;
  std::string prefix = "berth";           // of every key
  std::chrono::milliseconds ttl{45'000};  // how long a client counts after its last heartbeat
};

// Errors are ErrorKind::usage. They quote nothing of `text` but its scheme: any text in the wrong
// place might be the password.
Result<RedisUrl> parse_redis_url(std::string_view text);

// The URL without user, password and ttl, for messages and records. parse_redis_url() accepts it.
std::string format_redacted_url(const RedisUrl& url);

// "host:6379", "[::1]:6379".
std::string format_address(const RedisUrl::Address& address);

}  // namespace berth
