// A Lua script that a Redis server runs as one atomic step.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cluster/redis/connection.h"
#include "cluster/redis/reply.h"

namespace berth {

class Script {
 public:
  explicit Script(std::string_view source);

  // Runs the script by its SHA-1. If the server does not have the script (it never received it, or
  // was restarted since), sends the source, which the server then keeps. Errors are those of
  // RedisConnection::call().
  Result<Reply> run(RedisConnection& connection, const std::vector<std::string>& keys,
                    const std::vector<std::string>& arguments) const;

  // The EVALSHA command, for pipeline() and send(). The server must have the script already.
  RedisCommand evalsha_command(const std::vector<std::string>& keys,
                               const std::vector<std::string>& arguments) const;

  const std::string& source() const { return source_; }
  const std::string& sha1() const { return sha1_; }  // in hexadecimal

 private:
  std::string source_;
  std::string sha1_;
};

}  // namespace berth
