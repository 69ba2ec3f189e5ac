// A Lua script that a Redis server runs as one indivisible step.
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

  // By its SHA-1; where the server does not know it yet (or no more: it was restarted), by its
  // source, which the server then remembers. Errors as of RedisConnection::call().
  Result<Reply> run(RedisConnection& connection, const std::vector<std::string>& keys,
                    const std::vector<std::string>& arguments) const;

  // For pipeline() and send(): EVALSHA with all that follows it. The server must know the script.
  RedisCommand evalsha_command(const std::vector<std::string>& keys,
                               const std::vector<std::string>& arguments) const;

  const std::string& source() const { return source_; }
  const std::string& sha1() const { return sha1_; }  // in hexadecimal

 private:
  std::string source_;
  std::string sha1_;
};

}  // namespace berth
